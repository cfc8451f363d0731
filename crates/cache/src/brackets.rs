//! Where an object or array ends, found 64 bytes at a time.
//!
//! Most of an object's text lies in values that a pass steps over. For each block, a bit for
//! each byte says where quotes, backslashes and brackets are. What lies within strings follows from
//! these bits by a few operations on whole words, without a branch for every string. (The idea is that of
//! Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019, <https://arxiv.org/abs/1902.08318>.)

/// Bytes looked at together: one for each bit of a word.
const BLOCK: usize = 64;

/// The length in bytes of the object or array at the beginning of `text`; `None` if it does not end.
///
/// Does not check that brackets match in kind.
pub(super) fn end(text: &[u8]) -> Option<usize> {
    let (mut escapes, mut strings) = (Escapes::default(), Strings::default());
    let mut depth = 0_u32;
    for (number, block) in text.chunks(BLOCK).enumerate() {
        let block = padded(block);
        let escaped = escapes.next(where_is(&block, |byte| byte == b'\\'));
        let within = strings.next(where_is(&block, |byte| byte == b'"') & !escaped);
        let structure = !(within | escaped);
        // Braces and square brackets differ in one bit.
        let opened = where_is(&block, |byte| byte | 0x20 == b'{') & structure;
        let closed = where_is(&block, |byte| byte | 0x20 == b'}') & structure;
        if closed.count_ones() < depth {
            // Fewer close here than are open, so the end is not in this block.
            depth = depth + opened.count_ones() - closed.count_ones();
            continue;
        }
        for place in places(opened | closed) {
            if opened >> place & 1 == 1 {
                depth += 1;
            } else {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(number * BLOCK + place as usize + 1);
                }
            }
        }
    }
    None
}

/// What a text is made of, but for what stands in its strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// The commas between values.
    pub(super) commas: usize,
    /// The objects, each with those within it.
    pub(super) objects: usize,
    /// Those of them that are the value of a member, right behind its colon.
    pub(super) members: usize,
}

/// Counts the parts of a text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Counter {
    escapes: Escapes,
    strings: Strings,
    /// One, if the last byte was a colon outside of strings.
    colon: u64,
    pub(super) parts: Parts,
}

impl Counter {
    pub(super) fn add(&mut self, text: &[u8]) {
        for block in text.chunks(BLOCK) {
            let last = block.len() - 1;
            let block = padded(block);
            let escaped = self.escapes.next(where_is(&block, |byte| byte == b'\\'));
            let within = self.strings.next(where_is(&block, |byte| byte == b'"') & !escaped);
            if last < BLOCK - 1 {
                // It is not the blank behind it that is escaped, but what comes next.
                self.escapes.open |= escaped >> (last + 1) & 1 == 1;
            }
            let find = |wanted: u8| where_is(&block, |byte| byte == wanted) & !(within | escaped);
            let (objects, colons) = (find(b'{'), find(b':'));
            let members = objects & (colons << 1 | self.colon);
            self.colon = colons >> last & 1;
            self.parts.commas += find(b',').count_ones() as usize;
            self.parts.objects += objects.count_ones() as usize;
            self.parts.members += members.count_ones() as usize;
        }
    }
}

/// Counts the parts of a text.
pub(super) fn parts(text: &[u8]) -> Parts {
    let mut counter = Counter::default();
    counter.add(text);
    counter.parts
}

/// Which bytes come behind a backslash that is not itself escaped.
#[derive(Debug, Default)]
struct Escapes {
    /// Whether the last block's last byte was such a backslash.
    open: bool,
}

impl Escapes {
    fn next(&mut self, backslashes: u64) -> u64 {
        let mut escaped = u64::from(std::mem::take(&mut self.open));
        for place in places(backslashes) {
            if escaped >> place & 1 == 1 {
                continue;
            }
            match place {
                63 => self.open = true,
                _ => escaped |= 2 << place,
            }
        }
        escaped
    }
}

/// Which bytes lie in strings, the opening quote counted in.
#[derive(Debug, Default)]
struct Strings {
    /// All bits, if the last block ended within one.
    open: u64,
}

impl Strings {
    fn next(&mut self, quotes: u64) -> u64 {
        // Bit by bit: whether the number of quotes up to there is odd.
        let odd = [1, 2, 4, 8, 16, 32].iter().fold(quotes, |odd, by| odd ^ (odd << by));
        let within = odd ^ self.open;
        self.open = 0_u64.wrapping_sub(within >> 63);
        within
    }
}

/// The places of the bits that are set, the lowest first.
fn places(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        place
    })
}

/// A bit for each byte of which `is` holds, the lowest for the first.
fn where_is(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> u64 {
    /// Moves the lowest bit of each of eight bytes into the highest byte, in order.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let hits = block.map(|byte| u8::from(is(byte)));
    let (words, _) = hits.as_chunks::<8>();
    let gathered = words.iter().map(|word| u64::from_le_bytes(*word).wrapping_mul(GATHER) >> 56);
    gathered.enumerate().fold(0, |mask, (word, bits)| mask | bits << (8 * word))
}

fn padded(bytes: &[u8]) -> [u8; BLOCK] {
    bytes.try_into().unwrap_or_else(|_| {
        let mut block = [b' '; BLOCK];
        block[..bytes.len()].copy_from_slice(bytes);
        block
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, byte by byte.
    fn slowly(text: &[u8]) -> Option<usize> {
        let (mut depth, mut within, mut escaped) = (0_u32, false, false);
        for (at, byte) in text.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => within = !within,
                b'{' | b'[' if !within => depth += 1,
                b'}' | b']' if !within => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    #[test]
    fn ends_of_values() {
        for (text, expect) in [
            ("{}", Some(2)),
            ("[] ", Some(2)),
            (r#"{"a":[{"b":1}],"c":{}},"d":1"#, Some(22)),
            (r#"{"}":"]"}]"#, Some(9)),
            (r#"{"\"}":"\\"}}"#, Some(12)),
            ("{", None),
            (r#"["]"#, None),
            ("", None),
        ] {
            assert_eq!(end(text.as_bytes()), expect, "{text}");
            assert_eq!(slowly(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn strings_and_escapes_go_across_blocks() {
        for before in 50..80 {
            for text in [r#"\"}"]}"#, r#"\\"}"]}"#, r#"","}"]}"#] {
                let text = format!(r#"{{"a":["{}{text}"#, "x".repeat(before));
                assert_eq!(end(text.as_bytes()), slowly(text.as_bytes()), "{text}");
            }
        }
    }

    #[test]
    fn commas_and_objects_outside_of_strings_are_counted() {
        for before in 0..130 {
            let text =
                format!(r#"{{"{}":",{{","\\":{{"a":["\",",{{}}]}}}},"#, ",:{".repeat(before));
            let expect = Parts { commas: 3, objects: 3, members: 1 };
            assert_eq!(parts(text.as_bytes()), expect, "{text}");
        }
    }

    proptest! {
        #[test]
        fn blocks_find_what_bytes_find(text in "[{}\\[\\]\"\\\\a]{0,300}", deep in "[{\\[]{0,100}") {
            let text = format!("{deep}{text}");
            prop_assert_eq!(end(text.as_bytes()), slowly(text.as_bytes()));
        }

        #[test]
        fn pieces_count_as_the_whole_does(text in "[{},:\\[\"\\\\a]{0,300}", size in 1..150_usize) {
            let mut counter = Counter::default();
            text.as_bytes().chunks(size).for_each(|piece| counter.add(piece));
            prop_assert_eq!(counter.parts, parts(text.as_bytes()));
        }
    }
}
