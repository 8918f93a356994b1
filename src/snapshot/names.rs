//! File names: how one is shown to a person, and which ones say "credential". Reads no content.

/// A path for a message: what could deceive a terminal or a reader is escaped, invalid UTF-8 too.
pub(super) fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        for sign in chunk.valid().chars() {
            if is_deceptive(sign) { text.extend(sign.escape_default()) } else { text.push(sign) }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

fn is_deceptive(sign: char) -> bool {
    sign.is_control()
        || matches!(sign, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Some paths for a message: at most ten, and how many more.
pub(super) fn some<'a>(paths: impl IntoIterator<Item = &'a [u8]>) -> String {
    const MOST: usize = 10;
    let all: Vec<&[u8]> = paths.into_iter().collect();
    let mut text = all.iter().take(MOST).map(|path| shown(path)).collect::<Vec<_>>().join(", ");
    if all.len() > MOST {
        text.push_str(&format!(" and {} more", all.len() - MOST));
    }
    text
}

/// Whole names that hold credentials.
const NAMES: [&str; 22] = [
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".dockerconfigjson",
    ".vault-token",
    ".s3cfg",
    ".boto",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "kubeconfig",
    "secring.gpg",
    "terraform.tfstate",
];

/// How such names end.
const ENDINGS: [&str; 11] =
    [".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".keystore", ".kdbx", ".env", ".tfvars", ".asc"];

/// How such names begin.
const BEGINNINGS: [&str; 8] = [
    ".env.",
    "credentials",
    "client_secret",
    "service-account",
    "service_account",
    "secrets.",
    "application_default_credentials",
    "id_rsa.",
];

/// A name that ends so is an example or a public half, not a credential.
const HARMLESS: [&str; 6] = [".example", ".sample", ".template", ".dist", ".pub", ".md"];

/// Paths of a home folder that were taken along.
const PATHS: [&str; 3] = [".docker/config.json", ".aws/config", ".kube/config"];

/// Whether a path's name says that it holds a credential; upper and lower case are the same.
pub(super) fn is_credential(path: &[u8]) -> bool {
    let path = String::from_utf8_lossy(path).to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    if HARMLESS.iter().any(|ending| name.ends_with(ending)) {
        return false;
    }
    NAMES.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || PATHS.iter().any(|known| path == *known || path.ends_with(&format!("/{known}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_says_credential_is_known_and_an_example_of_one_is_not() {
        let yes = [
            ".env",
            ".ENV",
            "a/.env",
            ".env.local",
            "prod.env",
            "server.pem",
            "TLS.KEY",
            "id_rsa",
            "a/b/id_ed25519",
            "credentials",
            "credentials.json",
            ".aws/credentials",
            "home/.docker/config.json",
            ".netrc",
            "secrets.yaml",
            "service-account-prod.json",
            ".git-credentials",
            "terraform.tfstate",
        ];
        for path in yes {
            assert!(is_credential(path.as_bytes()), "{path}");
        }
        let no = [
            ".env.example",
            ".env.sample",
            "id_rsa.pub",
            "environment.py",
            "keys.py",
            "config.json",
            "docker/config.json",
            "monkey",
            "credentials.md",
            "a.env/b",
            "my-credentials-doc.txt",
        ];
        for path in no {
            assert!(!is_credential(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn a_path_is_shown_so_that_it_cannot_deceive() {
        let table: [(&[u8], &str); 6] = [
            (b"a b'\"", "a b'\""),
            ("ä".as_bytes(), "ä"),
            (b"a\nb\x1b[2J", "a\\nb\\u{1b}[2J"),
            (b"\xff.txt", "\\xff.txt"),
            ("a\u{2028}b".as_bytes(), "a\\u{2028}b"),
            ("\u{202e}gpj".as_bytes(), "\\u{202e}gpj"),
        ];
        for (path, wanted) in table {
            assert_eq!(shown(path), wanted);
        }
    }

    #[test]
    fn many_paths_are_shortened() {
        let many: Vec<Vec<u8>> = (0..13).map(|n| format!("f{n}").into_bytes()).collect();
        assert!(some(many.iter().map(Vec::as_slice)).ends_with("f9 and 3 more"));
        assert_eq!(some([b"a".as_slice()]), "a");
    }
}
