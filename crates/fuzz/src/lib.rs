//! Properties that must hold of everything that comes from outside, tried on kept seeds and on what edits make of
//! them: [`fuzz!`]. Only tests use it.
//!
//! A property stands beside the code that it attacks, in a test named `fuzz::…`, and its seeds are in the folder
//! `seeds` of that crate, one folder for each. An ordinary run tries the same edits each time. If
//! `BOLERO_RANDOM_TEST_TIME_MS` says for how long, bolero chooses others at random, and shortens an input that breaks
//! a property. Such an input becomes a seed.

use std::fmt;
use std::fs;
use std::path::Path;

pub use bolero;
use bolero::generator::bolero_generator::driver::{ByteSliceDriver, Options};
use bolero::{Driver, ValueGenerator};

/// The longest input, in bytes. Whatever reads more is bounded elsewhere.
const MAX_BYTES: usize = 64 << 10;
/// The most edits of one seed.
const MAX_EDITS: usize = 6;
/// How often a part may be repeated at once: enough to go deep.
const MAX_REPEATS: usize = 300;
/// The inputs that an ordinary run makes of the seeds.
const ROUNDS: u64 = 2_000;
/// How many random bytes choose the edits of one input.
const CHOICES: usize = 256;
/// Pieces with which texts often go wrong.
const PIECES: [&[u8]; 24] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"null",
    b"\\u0000",
    b"\\ud800",
    b"\\\"",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\xff",
    b"\xef\xbb\xbf",
    "é\u{202e}".as_bytes(),
    b"\0",
    b"`",
];

/// Bytes that are tried.
pub struct Input(Vec<u8>);

/// As a text, which can become a seed.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl AsRef<[u8]> for Input {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// An input that is printed if the property does not hold of it.
#[derive(Debug)]
pub struct Shown<'a>(pub &'a Input);

impl Shown<'_> {
    /// Tries a property.
    pub fn judge(self, holds: fn(&[u8])) {
        holds(&self.0.0);
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{:?}", self.0);
        }
    }
}

/// The seeds of one property, and what edits make of them.
#[derive(Debug)]
pub struct Mutants {
    seeds: Vec<(String, Vec<u8>)>,
}

impl Mutants {
    /// Those of the files in a folder.
    ///
    /// # Panics
    /// Without any file there.
    pub fn of(folder: &Path) -> Self {
        let files = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        let seed = |path: &std::path::PathBuf| {
            (path.display().to_string(), fs::read(path).expect("a seed"))
        };
        let seeds: Vec<_> = files.iter().map(seed).collect();
        assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
        Self { seeds }
    }

    /// The seeds as they are, with their files.
    pub fn seeds(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.seeds.iter().map(|(file, seed)| (file.as_str(), seed.as_slice()))
    }

    /// What the edits of an ordinary run make of them, the same each time.
    pub fn edited(&self) -> impl Iterator<Item = Input> {
        (0..ROUNDS).filter_map(|round| {
            let mut choices = [0; CHOICES];
            fastrand::Rng::with_seed(round).fill(&mut choices);
            let mut driver = ByteSliceDriver::new(&choices, &Options::default());
            self.generate(&mut driver)
        })
    }

    fn seed<D: Driver>(&self, driver: &mut D) -> Option<&[u8]> {
        Some(&self.seeds[below(driver, self.seeds.len())?].1)
    }

    fn edit<D: Driver>(&self, driver: &mut D, text: &mut Vec<u8>) -> Option<()> {
        let at = below(driver, text.len() + 1)?;
        let until = at + below(driver, (text.len() - at).min(64) + 1)?;
        match below(driver, 6)? {
            0 => drop(text.drain(at..until)),
            1 => {
                let piece = PIECES[below(driver, PIECES.len())?];
                text.splice(at..until, piece.iter().copied());
            }
            2 => {
                let piece = PIECES[below(driver, PIECES.len())?];
                text.splice(at..at, piece.iter().copied());
            }
            3 => {
                let part = text[at..until].repeat(below(driver, MAX_REPEATS)?);
                text.splice(at..at, part);
            }
            4 => {
                let other = self.seed(driver)?;
                let from = below(driver, other.len() + 1)?;
                let to = from + below(driver, other.len() - from + 1)?;
                text.splice(at..until, other[from..to].iter().copied());
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = driver.produce()?;
                }
            }
        }
        text.truncate(MAX_BYTES);
        Some(())
    }
}

impl ValueGenerator for Mutants {
    type Output = Input;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Input> {
        let mut text = self.seed(driver)?.to_vec();
        for _ in 0..=below(driver, MAX_EDITS)? {
            self.edit(driver, &mut text)?;
        }
        Some(Input(text))
    }
}

/// A number below another, which is not zero.
fn below<D: Driver>(driver: &mut D, most: usize) -> Option<usize> {
    (0..most).generate(driver)
}

/// Tries a property on the seeds in the folder `seeds/<name>` of the crate, and on what edits make of
/// them: the same ones each time, or others for as long as `BOLERO_RANDOM_TEST_TIME_MS` says. The property takes
/// bytes, and panics on those of which it does not hold. To be called in a test of that name.
#[macro_export]
macro_rules! fuzz {
    ($name:literal, $holds:expr) => {{
        let holds: fn(&[u8]) = $holds;
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds/", $name);
        let mutants = $crate::Mutants::of(::std::path::Path::new(folder));
        for (file, seed) in mutants.seeds() {
            // Shown if the property does not hold of it.
            println!("{file}");
            holds(seed);
        }
        if ::std::env::var_os("BOLERO_RANDOM_TEST_TIME_MS").is_some() {
            $crate::bolero::check!()
                .with_generator(mutants)
                .for_each(|input: &$crate::Input| holds(input.as_ref()));
        } else {
            mutants.edited().for_each(|input| $crate::Shown(&input).judge(holds));
        }
    }};
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "an edit")]
    fn a_property_that_edits_break_is_found() {
        fuzz!("words", |input| assert!(!input.contains(&b'"'), "an edit"));
    }

    #[test]
    #[should_panic(expected = "a seed")]
    fn a_property_that_a_seed_breaks_is_found() {
        fuzz!("words", |input| assert_ne!(input, b"word", "a seed"));
    }

    #[test]
    fn inputs_are_bounded() {
        fuzz!("words", |input| assert!(input.len() <= super::MAX_BYTES));
    }
}
