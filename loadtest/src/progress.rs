//! Progress bars on the terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of this length.
pub fn bar(length: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:32} [{bar:40}] {percent:>3}% {elapsed}")
        .expect("the template is constant and valid")
        .progress_chars("=> ");
    ProgressBar::new(length).with_style(style).with_message(what.to_owned())
}
