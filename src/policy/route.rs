//! Routes: `METHOD /path?key&key`. Owns how one is written; only normalized paths exist, so that a path as received can be
//! compared byte by byte.

use super::Route;
use super::credential;

pub(super) const A_ROUTE: &str = "\"METHOD /path\" or \"METHOD /path?key&key\": GET, POST, PUT, PATCH or DELETE; a normalized path without percent \
     signs, in which {model} may stand once for a segment, or for its part before a colon";

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// A route from its text.
pub(super) fn route(text: &str) -> Option<Route> {
    let (method, rest) = text.split_once(' ')?;
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    if text.len() > 512 || !METHODS.contains(&method) || !is_route_path(path) {
        return None;
    }
    let query: Vec<String> = query.map_or(Vec::new(), |keys| keys.split('&').map(str::to_owned).collect());
    let unique = query.iter().enumerate().all(|(i, key)| !query[..i].contains(key));
    let fits = unique && query.iter().all(|key| is_query_key(key));
    fits.then(|| Route { method: method.to_owned(), path: path.to_owned(), query })
}

/// `""` or `/v1`: what the private URL ends in.
pub(super) fn is_target_path(text: &str) -> bool {
    text.is_empty() || (text.len() <= 256 && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment)))
}

fn is_route_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let segment = |segment: &str| match segment.strip_prefix("{model}") {
        Some(verb) => verb.is_empty() || verb.strip_prefix(':').is_some_and(is_segment),
        None => is_segment(segment),
    };
    rest.split('/').all(segment) && path.matches("{model}").count() <= 1
}

/// Unreserved signs and those that no reader takes for another; never a dot segment.
fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'$' | b'+'))
}

/// A key that would carry a credential is none: the gateway presents its own in a header.
fn is_query_key(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'$'))
        && credential::name(text).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_reads_back_as_it_was_written() {
        for text in [
            "POST /v1/responses",
            "GET /v1/models",
            "GET /v1/models/{model}",
            "POST /v1beta/models/{model}:streamGenerateContent?alt&$fields",
            "POST /openai/deployments/{model}/chat/completions?api-version",
        ] {
            assert_eq!(route(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_normalizing_would_change_is_no_route() {
        for text in [
            "",
            "/v1",
            "POST",
            "POST v1",
            "post /v1",
            "TRACE /v1",
            "CONNECT a:1",
            "POST  /v1",
            "POST /v1 ",
            "POST /",
            "POST /v1/",
            "POST //v1",
            "POST /v1/../x",
            "POST /v1/./x",
            "POST /v1/%2e",
            "POST /v1\\x",
            "POST /v1#x",
            "POST /v1?",
            "POST /v1?a&a",
            "POST /v1?a=1",
            "POST /v1?a?b",
            "POST /v1?key",
            "POST /v1?access_token",
            "POST /v1/*",
            "POST /v1/{id}",
            "POST /{model}/{model}",
            "POST /a{model}",
            "POST /{model}x",
            "POST /{model}:",
            "POST http://a/v1",
            "POST /ä",
        ] {
            assert!(route(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_target_path_is_empty_or_normalized() {
        for (text, wanted) in [
            ("", true),
            ("/v1", true),
            ("/api/v1", true),
            ("/", false),
            ("/v1/", false),
            ("v1", false),
            ("/../v1", false),
        ] {
            assert_eq!(is_target_path(text), wanted, "{text}");
        }
    }
}
