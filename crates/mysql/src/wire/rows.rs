//! Text queries and their answers.

use super::cursor::{Cursor, ERROR, refusal};
use super::packet::Packets;
use super::{Stream, WireError};

/// The command of a query.
const QUERY: u8 = 3;
/// The first byte of the packet that ends rows.
const END: u8 = 0xfe;
/// The first byte of a request for a file of the client.
const INFILE: u8 = 0xfb;
/// The flag that another answer follows.
const MORE: u64 = 8;
/// The most answers to statements that are sent at once.
const MAX_ANSWERS: usize = 16;
/// The most columns of an answer. `SHOW REPLICA STATUS` has some 60.
const MAX_COLUMNS: usize = 200;
/// The most rows of an answer.
const MAX_ROWS: usize = 1_000;
/// The most bytes of all answers to a query.
const MAX_BYTES: usize = 2 << 20;

/// The answer to a statement: rows, or none if it has no result.
pub(crate) type Answer = Vec<Row>;

/// A row: values with the names of their columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row(Vec<(String, Option<String>)>);

impl Row {
    /// The value in a column; nothing if it is NULL or there is no such column.
    pub(crate) fn get(&self, column: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name == column);
        found.and_then(|(_, value)| value.as_deref())
    }

    #[cfg(test)]
    pub(crate) fn of(values: &[(&str, &str)]) -> Self {
        Self(
            values
                .iter()
                .map(|(name, value)| (name.to_string(), Some(value.to_string())))
                .collect(),
        )
    }
}

/// What may still be read.
struct Budget(usize);

impl Budget {
    async fn read<S: Stream>(&mut self, packets: &mut Packets<S>) -> Result<Vec<u8>, WireError> {
        let packet = packets.read().await?;
        let left = self.0.checked_sub(packet.len());
        self.0 = left.ok_or(WireError::TooMuch { most: MAX_BYTES, what: "bytes" })?;
        match packet.first() {
            Some(&ERROR) => Err(refusal(&packet)),
            Some(_) => Ok(packet),
            None => Err(WireError::Unreadable("a packet of an answer")),
        }
    }
}

pub(super) async fn ask<S: Stream>(
    packets: &mut Packets<S>,
    statements: &str,
) -> Result<Vec<Answer>, WireError> {
    packets.restart();
    packets.write(&[&[QUERY], statements.as_bytes()].concat()).await?;
    let (mut answers, mut budget) = (Vec::new(), Budget(MAX_BYTES));
    loop {
        if answers.len() == MAX_ANSWERS {
            return Err(WireError::TooMuch { most: MAX_ANSWERS, what: "parts" });
        }
        let (answer, is_last) = answer(packets, &mut budget).await?;
        answers.push(answer);
        if is_last {
            return Ok(answers);
        }
    }
}

/// An answer, and whether it is the last.
async fn answer<S: Stream>(
    packets: &mut Packets<S>,
    budget: &mut Budget,
) -> Result<(Answer, bool), WireError> {
    let first = budget.read(packets).await?;
    match first.first() {
        Some(0) => return Ok((Vec::new(), is_last(&first)?)),
        Some(&INFILE) => {
            return Err(WireError::Unreadable("an answer: it asks for a file of the client"));
        }
        _ => {}
    }
    let mut cursor = Cursor::new(&first, "a number of columns");
    let count = usize::try_from(cursor.length()?).ok().filter(|count| *count <= MAX_COLUMNS);
    let count = count.ok_or(WireError::TooMuch { most: MAX_COLUMNS, what: "columns" })?;
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        names.push(column(&budget.read(packets).await?)?);
    }
    let mut rows = Vec::new();
    loop {
        let packet = budget.read(packets).await?;
        // A row that begins so has a value of more than 16 MiB, and no packet is that long.
        if packet.first() == Some(&END) {
            return Ok((rows, is_last(&packet)?));
        }
        if rows.len() == MAX_ROWS {
            return Err(WireError::TooMuch { most: MAX_ROWS, what: "rows" });
        }
        rows.push(row(&packet, &names)?);
    }
}

/// Whether no answer follows the one that this packet ends.
fn is_last(packet: &[u8]) -> Result<bool, WireError> {
    let mut cursor = Cursor::new(packet, "the end of an answer");
    cursor.take(1)?;
    cursor.length()?;
    cursor.length()?;
    Ok(cursor.number(2)? & MORE == 0)
}

/// The name of a column: after its catalog, schema, table, and the table's own name.
fn column(packet: &[u8]) -> Result<String, WireError> {
    let mut cursor = Cursor::new(packet, "a column");
    for _ in 0..4 {
        cursor.bytes()?;
    }
    Ok(text(cursor.bytes()?.unwrap_or_default()))
}

fn row(packet: &[u8], names: &[String]) -> Result<Row, WireError> {
    let mut cursor = Cursor::new(packet, "a row");
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        values.push((name.clone(), cursor.bytes()?.map(text)));
    }
    match cursor.is_empty() {
        true => Ok(Row(values)),
        false => Err(WireError::Unreadable("a row")),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
