//! Self-contained pages: a run (`run`), a comparison (`compare`). One file, no network, no foreign script; the page's own
//! policy (CSP) allows exactly the one style and the one script that it carries, by their digests.
//!
//! Foreign text is escaped in markup, or is data that the script puts in as text; it is never markup.

mod chart;
mod compare;
mod matrix;
mod origin;
mod run;
mod story;
mod summary;

pub use compare::compare;
pub use run::run;

use crate::report::text::{entity, safe};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use sha2::Digest as _;
use std::io::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A page that is being written.
struct Page<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Page<'a> {
    /// Writes the head, and the header's beginning with the brand. `title` is escaped here.
    fn begin(out: &'a mut dyn Write, title: &str) -> Result<Self> {
        let mut page = Self { out };
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
            source(STYLE),
            source(SCRIPT)
        );
        page.put(&format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<div class=\"brand\">{} CrashLab</div>\n",
            escape(title),
            chart::MARK
        ))?;
        Ok(page)
    }

    /// Writes markup that is safe already.
    fn put(&mut self, markup: &str) -> Result<()> {
        self.out.write_all(markup.as_bytes()).context("failed to write the page")
    }

    /// The search field and a box for each kind of row; the script shows it.
    fn filter(&mut self, kinds: &[(&str, &str, u64)]) -> Result<()> {
        self.put(
            "<noscript><p class=\"doubt\">The rows open and filter by the page's own script.</p></noscript>\n\
             <div class=\"filter\" role=\"search\" hidden>\n<input type=\"search\" id=\"search\" aria-label=\"filter\" \
             placeholder=\"filter by name, check, reason\">\n",
        )?;
        for (kind, words, number) in kinds {
            self.put(&format!(
                "<label><input type=\"checkbox\" data-kind=\"{kind}\" checked> <span class=\"{kind}\">{words}</span> {number}</label>\n"
            ))?;
        }
        self.put(
            "<span id=\"shown\" class=\"faint\" role=\"status\"></span>\n\
             <span class=\"faint keys\"><kbd>/</kbd> filter <kbd>j</kbd> <kbd>k</kbd> move <kbd>n</kbd> next to look at \
             <kbd>Enter</kbd> open</span>\n</div>\n",
        )
    }

    /// A list of label and value; the values are markup.
    fn facts(&mut self, facts: &[(&str, String)]) -> Result<()> {
        self.put("<dl>\n")?;
        for (label, value) in facts {
            self.put(&format!("<dt>{label}</dt><dd>{value}</dd>\n"))?;
        }
        self.put("</dl>\n")
    }

    /// Writes the end.
    fn end(mut self) -> Result<()> {
        self.put(&format!("<script>{SCRIPT}</script>\n</body>\n</html>\n"))
    }
}

/// What the policy calls a style or a script by.
fn source(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(text.as_bytes())))
}

/// Foreign text as markup: neutral for the eye (control and direction characters), and no markup.
fn escape(text: &str) -> String {
    let text = safe(text);
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match entity(char) {
            Some(entity) => out.push_str(entity),
            None => out.push(char),
        }
    }
    out
}

/// JSON for a data block: nothing in it can end the block, or begin a comment that hides its end.
fn data(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_and_the_script_cannot_end_their_element() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("eval"));
    }

    #[test]
    fn foreign_text_is_no_markup() {
        assert_eq!(
            escape("<img src=x onerror='a'>\"&\u{202e}"),
            "&lt;img src=x onerror=&#39;a&#39;&gt;&quot;&amp;\\u{202e}"
        );
        let hostile = serde_json::json!({"</script><!--": "<script>&\u{2028}"});
        let text = data(&hostile);
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), hostile);
    }
}
