//! Which names and values look like credentials (S5): the one table of it, for the target's environment, build arguments
//! and what a refusal may quote. Knows nothing of policies; never hands a value on.

/// A name with one of these segments is credential-like.
const SEGMENTS: [&str; 9] =
    ["KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS", "AUTH"];

/// Names that have such a segment and are no credentials: each with the reason.
const HARMLESS: [&str; 3] = [
    "MAX_TOKEN",    // a number: how many tokens to ask for
    "TOKEN_LIMIT",  // a number
    "TOKEN_BUDGET", // a number
];

/// How well-known keys start.
const PREFIXES: [(&str, &str); 12] = [
    ("sk-", "an API key (sk-…)"),
    ("sk_live_", "a Stripe key (sk_live_…)"),
    ("ghp_", "a GitHub token (ghp_…)"),
    ("gho_", "a GitHub token (gho_…)"),
    ("github_pat_", "a GitHub token (github_pat_…)"),
    ("glpat-", "a GitLab token (glpat-…)"),
    ("xox", "a Slack token (xox…)"),
    ("AKIA", "an AWS key (AKIA…)"),
    ("ASIA", "an AWS key (ASIA…)"),
    ("AIza", "a Google key (AIza…)"),
    ("hf_", "a Hugging Face token (hf_…)"),
    ("-----BEGIN ", "a private key in PEM form"),
];

/// The segment that makes a name credential-like, whatever its case.
pub fn name(text: &str) -> Option<&'static str> {
    let upper = text.to_ascii_uppercase();
    if HARMLESS.contains(&upper.as_str()) {
        return None;
    }
    SEGMENTS.into_iter().find(|segment| upper.split(['_', '-', '.']).any(|part| part == *segment))
}

/// What a value looks like, in words that do not quote it. Leading white space and quotes do not hide one.
pub fn value(text: &str) -> Option<&'static str> {
    let start = text.trim_start_matches([' ', '\t', '\n', '\r', '"', '\'']);
    let bare = start.strip_prefix("Bearer ").unwrap_or(start);
    let known = PREFIXES.into_iter().find(|(prefix, _)| bare.starts_with(prefix));
    match known {
        Some(("-----BEGIN ", what)) => bare.lines().next()?.contains("PRIVATE KEY").then_some(what),
        Some((_, what)) => Some(what),
        None => json_web_token(bare).then_some("a JSON Web Token"),
    }
}

/// Three base64url parts, of which the first two are JSON objects (`{"` is `eyJ`).
fn json_web_token(text: &str) -> bool {
    let parts: Vec<&str> = text.trim_end().split('.').collect();
    let base64url = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'='));
    parts.len() == 3
        && parts[..2].iter().all(|part| part.starts_with("eyJ") && part.len() > 8)
        && parts.iter().all(|part| base64url(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_credential_like_by_its_segments() {
        let table = [
            ("OPENAI_API_KEY", true),
            ("openai_api_key", true),
            ("GITHUB_TOKEN", true),
            ("DB_PASSWORD", true),
            ("PGPASSWD", false),
            ("PG_PASSWD", true),
            ("AWS_SECRET_ACCESS_KEY", true),
            ("GOOGLE_APPLICATION_CREDENTIALS", true),
            ("MY_CREDENTIAL", true),
            ("SERVICE_APIKEY", true),
            ("SSH_AUTH_SOCK", true),
            ("KEY", true),
            ("TOKENIZERS_PARALLELISM", false),
            ("MAX_TOKENS", false),
            ("MONKEY", false),
            ("KEYBOARD_LAYOUT", false),
            ("AUTHOR", false),
            ("LOG_LEVEL", false),
            ("PATH", false),
            ("TOKEN_LIMIT", false),
        ];
        for (text, wanted) in table {
            assert_eq!(name(text).is_some(), wanted, "{text}");
        }
    }

    #[test]
    fn a_value_is_credential_like_by_its_form() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U";
        let pem = ["-----BEGIN RSA PRIVATE ", "KEY-----\nMIIE"].concat();
        let mut like = vec![jwt.to_owned(), format!("Bearer {jwt}"), pem, "-----BEGIN PRIVATE KEY-----".to_owned()];
        for prefix in ["sk-", "sk_live_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "AKIA", "ASIA", "AIza", "hf_"]
        {
            like.extend([format!("{prefix}0123456789"), format!(" \"{prefix}0123456789\"")]);
        }
        for text in &like {
            assert!(value(text).is_some(), "{text}");
        }
        for text in
            ["info", "risk-averse", "-----BEGIN CERTIFICATE-----", "1.2.3", "eyJ.eyJ.x", "a.b.c", "", "task-sk-1"]
        {
            assert!(value(text).is_none(), "{text}");
        }
    }
}
