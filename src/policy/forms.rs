//! Forms of the policy's words: names, paths, image references, origins. Each is a yes or a no over text alone; nothing
//! here looks at a disk or a network. What is accepted goes into argument lists and mount options as it is.

use camino::Utf8PathBuf;

pub(super) const A_RELATIVE_PATH: &str = "a path inside the package: relative, without \"..\", \".\" or \"//\"";
pub(super) const A_VARIABLE: &str = "an environment variable's name ([A-Za-z_][A-Za-z0-9_]*)";
pub(super) const AN_IMAGE: &str = "an image reference such as \"python:3.12-slim\", or an image id sha256:…";
pub(super) const AN_ORIGIN: &str =
    "https://HOST[:PORT] (or http:// on loopback) without path, query or user, or {\"script\": FILE}";

/// Places of a container that the engine fills, with everything below them.
const ENGINE_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Files that the engine mounts into /etc.
const ENGINE_FILES: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// `[a-z][a-z0-9_]{0,63}`, with `-` where `dash`.
pub(super) fn is_name(text: &str, dash: bool) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || (dash && b == b'-'))
}

/// `[a-z0-9-]{1,40}`.
pub(super) fn is_label(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// `[A-Za-z_][A-Za-z0-9_]*`, at most 128.
pub(super) fn is_variable(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// One line of at most 32 KiB: what an environment file of the engine's client can carry.
pub(super) fn is_one_line(text: &str) -> bool {
    text.len() <= 32 << 10 && !text.contains(['\0', '\n', '\r'])
}

/// A program's argument: no NUL, at most 32 KiB.
pub(super) fn is_argument(text: &str) -> bool {
    text.len() <= 32 << 10 && !text.contains('\0')
}

/// A normalized path inside a folder, never the folder itself.
pub(super) fn relative_path(text: &str) -> Option<Utf8PathBuf> {
    let fits = text.len() <= 1024
        && !text.chars().any(|c| c.is_control() || c == '\\')
        && text.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    fits.then(|| Utf8PathBuf::from(text))
}

/// A normalized absolute path of a container that may be mounted over. Its characters are those that mount options can
/// carry without quoting.
pub(super) fn container_path(text: &str) -> Option<String> {
    let plain = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'@' | b'~'))
    };
    let fits = text.len() <= 255
        && text.strip_prefix('/')?.split('/').all(plain)
        && !ENGINE_FOLDERS.iter().any(|folder| is_within(text, folder))
        && !ENGINE_FILES.iter().any(|file| is_within(file, text) || is_within(text, file));
    fits.then(|| text.to_owned())
}

/// Whether `path` is `folder` or lies below it; both normalized.
pub(super) fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `[HOST[:PORT]/]PATH[:TAG][@sha256:…]` as Docker's grammar has it, or an image id.
pub(super) fn is_image(text: &str) -> bool {
    if text.len() > 512 {
        return false;
    }
    if let Some(digits) = text.strip_prefix("sha256:") {
        return is_hex(digits);
    }
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    if digest.is_some_and(|digest| !digest.strip_prefix("sha256:").is_some_and(is_hex)) {
        return false;
    }
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    tag.is_none_or(is_tag) && is_repository(name)
}

/// What a Dockerfile may call a named context: a word, or an image's name whose place it takes.
pub(super) fn is_context_name(text: &str) -> bool {
    is_image(text) && !text.starts_with("sha256:")
}

fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_tag(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn is_repository(text: &str) -> bool {
    let (host, path) = match text.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (Some(first), rest),
        _ => (None, text),
    };
    host.is_none_or(|host| is_authority(host, false)) && path.split('/').all(is_component)
}

/// Lower-case letters and digits, between them `.`, `_`, `__` or dashes.
fn is_component(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'));
    edge(text.chars().next())
        && edge(text.chars().last())
        && inner
        && !["..", "___", "._", "_.", "-.", ".-", "-_", "_-"].iter().any(|bad| text.contains(bad))
}

/// `HOST[:PORT]`; with `brackets` also `[IPv6]`.
fn is_authority(text: &str, brackets: bool) -> bool {
    if let Some(rest) = text.strip_prefix('[').filter(|_| brackets) {
        let Some((inner, after)) = rest.split_once(']') else { return false };
        return inner.parse::<std::net::Ipv6Addr>().is_ok()
            && (after.is_empty() || after.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    is_host_name(host) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// `https://HOST[:PORT]`, or http where HOST is loopback.
pub(super) fn is_origin(text: &str) -> bool {
    if let Some(authority) = text.strip_prefix("https://") {
        return is_authority(authority, true);
    }
    text.strip_prefix("http://").is_some_and(|authority| is_authority(authority, true) && is_loopback(authority))
}

fn is_loopback(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        let inner = rest.split(']').next().unwrap_or_default();
        return inner.parse::<std::net::Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    let host = authority.split(':').next().unwrap_or_default();
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// `UID:GID`, neither 0.
pub(super) fn user(text: &str) -> Option<super::User> {
    let number = |part: &str| {
        let plain = part.starts_with(|c: char| matches!(c, '1'..='9')) && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u32>().ok().filter(|n| plain && i32::try_from(*n).is_ok())
    };
    let (uid, gid) = text.split_once(':')?;
    Some(super::User { uid: number(uid)?, gid: number(gid)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(good: &[&str], bad: &[&str], fits: impl Fn(&str) -> bool) {
        for text in good {
            assert!(fits(text), "{text:?} should do");
        }
        for text in bad {
            assert!(!fits(text), "{text:?} should not do");
        }
    }

    #[test]
    fn names_are_lower_case_words() {
        let long = "a".repeat(65);
        table(&["a", "get_order", "a1"], &["", "1a", "_a", "getOrder", "a-b", "a b", "ä", &long], |text| {
            is_name(text, false)
        });
        table(&["azure-openai"], &["-a", "a.b"], |text| is_name(text, true));
        let long = "a".repeat(41);
        table(&["refund-desk", "1", "-"], &["", "A", "a_b", "a.b", &long], is_label);
        table(&["A", "_x", "a1"], &["", "1A", "A-B", "A=B", "A B", "Ä"], is_variable);
    }

    #[test]
    fn a_path_of_the_package_stays_inside_it() {
        let bad = ["", ".", "..", "/a", "a/", "a//b", "./a", "a/../b", "../a", "a\\b", "a\nb"];
        table(&["a", "a/b.json", ".env", "..a"], &bad, |text| relative_path(text).is_some());
    }

    #[test]
    fn a_container_path_is_normalized_and_the_users_own() {
        let bad = [
            "",
            "/",
            "a",
            "/a/",
            "//a",
            "/a/../b",
            "/a/.",
            "/a,b",
            "/a:b",
            "/a b",
            "/a\"b",
            "/proc",
            "/proc/1",
            "/sys",
            "/dev",
            "/dev/shm",
            "/etc",
            "/etc/hosts",
            "/etc/hosts/a",
            "/etc/resolv.conf",
        ];
        table(&["/target", "/a/b", "/home/u/.cache", "/etc/ssl", "/process", "/devel"], &bad, |text| {
            container_path(text).is_some()
        });
    }

    #[test]
    fn an_image_reference_has_dockers_form() {
        let hex = "a".repeat(64);
        let (id, pinned, short) = (format!("sha256:{hex}"), format!("python:3@sha256:{hex}"), "python@sha256:aa");
        table(
            &[
                "python",
                "python:3.12-slim",
                "lab/python:1",
                "localhost:5000/a/b:c",
                "ghcr.io/a__b/c-d",
                "a.b/c",
                &id,
                &pinned,
            ],
            &[
                "",
                "-x",
                "Python",
                "a:",
                "a:b c",
                "a//b",
                "/a",
                "a/",
                "--privileged",
                "a@b",
                short,
                "a:-b",
                "a_-.b",
                "sha256:aa",
                "http://a/b",
            ],
            is_image,
        );
    }

    #[test]
    fn an_upstream_is_an_origin() {
        let good = [
            "https://api.openai.com",
            "https://a.b:8443",
            "https://127.0.0.1",
            "https://[::1]:8443",
            "http://127.0.0.1:8080",
            "http://localhost:1",
            "http://[::1]",
            "http://[::1]:99",
            "https://[2001:db8::1]",
        ];
        let bad = [
            "",
            "api.openai.com",
            "https://",
            "https://a/",
            "https://a/v1",
            "https://a?x",
            "https://a#x",
            "https://u@a",
            "https://u:p@a",
            "https://a:0",
            "https://a:99999",
            "https://a:",
            "http://a.b",
            "http://10.0.0.1",
            "ftp://a",
            "https://a b",
            "https://a_b",
            "HTTPS://a",
            "http://localhost.evil.com",
            "http://127.0.0.1.evil.com",
            "https://[::1",
            "https://::1",
            "https://[::1]x",
            "https://-a",
            "https://a..b",
            "http://[2001:db8::1]",
            "https://a\\b",
            "https://[::1]:",
        ];
        table(&good, &bad, is_origin);
    }

    #[test]
    fn a_user_is_two_numbers_neither_of_them_root() {
        let bad = [
            "",
            "0:0",
            "0:1",
            "1:0",
            "1",
            "1:",
            ":1",
            "a:b",
            "01:1",
            "1:1:1",
            "+1:1",
            "-1:1",
            "4294967296:1",
            "2147483648:1",
        ];
        table(&["65534:65534", "1:1", "1000:2147483647"], &bad, |text| user(text).is_some());
    }
}
