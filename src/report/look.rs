//! How text is to look: width and colour. Owns what `--color` and `NO_COLOR` mean and asks the terminal for its width; a
//! report itself only sees the two values.

use crate::cli::Color;
use std::io::IsTerminal as _;

/// The width where there is no terminal to ask.
const PLAIN_WIDTH: usize = 100;

/// Width and colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Whether to use colour.
    pub color: bool,
    /// Whether a person reads it on a terminal.
    pub terminal: bool,
}

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// Passed, better.
    Good,
    /// Failed, worse.
    Bad,
    /// Not measured, a warning.
    Doubt,
    /// A heading.
    Strong,
    /// Beside the point.
    Faint,
}

impl Look {
    /// Of standard output.
    pub fn of(color: Color) -> Self {
        let terminal = std::io::stdout().is_terminal();
        // NO_COLOR counts where it is set to anything but nothing (no-color.org).
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !refused,
        };
        Self { width: width(terminal), color, terminal }
    }

    /// No colour, so many columns.
    pub fn plain(width: usize) -> Self {
        Self { width, color: false, terminal: false }
    }

    /// The text in the colour of its meaning. The text must be safe already.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Doubt => "33",
            Tone::Strong => "1",
            Tone::Faint => "2",
        };
        if self.color && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// `COLUMNS` where it is set (whoever pipes may want a width), else the terminal's.
fn width(terminal: bool) -> usize {
    let asked = std::env::var_os("COLUMNS").and_then(|text| text.to_str()?.parse::<usize>().ok());
    let of_terminal = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    };
    let found = asked.or_else(|| if terminal { of_terminal() } else { None });
    found.unwrap_or(PLAIN_WIDTH).clamp(40, 500)
}
