//! A server for tests: it reads statements, and answers as it is told. Its packets are those of MySQL 9.7.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// The columns and values of a row.
pub(crate) type Line = Vec<(&'static str, Option<String>)>;

/// What it answers to one statement.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Done,
    /// A row by columns and values.
    Row(Line),
    /// Rows of the same columns; at least one.
    Rows(Vec<Line>),
    /// No row of these columns.
    Empty(&'static str),
    Error(u16, &'static str),
}

/// A stream to a server, for clients.
pub(crate) fn pair() -> (DuplexStream, Peer) {
    let (client, server) = duplex(4 << 20);
    (client, Peer { stream: server, sequence: 0 })
}

/// A server's end of a stream.
pub(crate) struct Peer {
    stream: DuplexStream,
    sequence: u8,
}

impl Peer {
    /// The next packet of the client; nothing if it is gone.
    pub(crate) async fn read(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        self.sequence = head[3].wrapping_add(1);
        let mut packet = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut packet).await.ok()?;
        Some(packet)
    }

    /// Writes a packet. A client that has seen enough may be gone.
    pub(crate) async fn write(&mut self, packet: &[u8]) {
        let length = u32::try_from(packet.len()).unwrap().to_le_bytes();
        let head = [length[0], length[1], length[2], self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        let _ = self.stream.write_all(&[&head[..], packet].concat()).await;
    }

    /// Writes bytes as they are.
    pub(crate) async fn write_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Answers statements until the client is gone, and returns all of them.
    pub(crate) async fn serve(mut self, mut answer: impl FnMut(&str) -> Reply) -> Vec<String> {
        let mut log = Vec::new();
        while let Some(packet) = self.read().await {
            assert_eq!(packet[0], 3, "a query");
            let text = String::from_utf8(packet[1..].to_vec()).unwrap();
            let statements: Vec<_> = text.split(';').map(str::trim).collect();
            for (index, statement) in statements.iter().enumerate() {
                let more = if index + 1 < statements.len() { 8 } else { 0 };
                log.push((*statement).to_owned());
                if !self.reply(answer(statement), more).await {
                    break;
                }
            }
        }
        log
    }

    /// Whether the statements go on.
    async fn reply(&mut self, reply: Reply, more: u8) -> bool {
        match reply {
            Reply::Done => self.write(&[0, 0, 0, 2 | more, 0, 0, 0]).await,
            Reply::Error(code, text) => {
                let code = code.to_le_bytes();
                self.write(&[&[0xff, code[0], code[1]], &b"#HY000"[..], text.as_bytes()].concat())
                    .await;
                return false;
            }
            Reply::Row(row) => self.rows(&[row], more).await,
            Reply::Rows(rows) => self.rows(&rows, more).await,
            Reply::Empty(columns) => {
                self.columns(columns.split(' ')).await;
                self.write(&[0xfe, 0, 0, 2 | more, 0, 0, 0]).await;
            }
        }
        true
    }

    async fn rows(&mut self, rows: &[Line], more: u8) {
        self.columns(rows[0].iter().map(|(name, _)| *name)).await;
        for row in rows {
            let values = row.iter().map(|(_, value)| match value {
                Some(value) => text(value),
                None => vec![0xfb],
            });
            self.write(&values.collect::<Vec<_>>().concat()).await;
        }
        self.write(&[0xfe, 0, 0, 2 | more, 0, 0, 0]).await;
    }

    async fn columns(&mut self, names: impl Iterator<Item = &str>) {
        let names: Vec<_> = names.collect();
        self.write(&[u8::try_from(names.len()).unwrap()]).await;
        for name in names {
            let tail = [0, 12, 0xff, 0, 0x54, 0x55, 1, 0, 0xfd, 0, 0, 0x1f, 0, 0];
            self.write(&[&b"\x03def\0\0\0"[..], &text(name), &tail].concat()).await;
        }
    }
}

/// A text after its length.
fn text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let head = match u8::try_from(length) {
        Ok(short @ 0..=250) => vec![short],
        _ => [&[0xfc], &length.to_le_bytes()[..]].concat(),
    };
    [head, text.as_bytes().to_vec()].concat()
}
