//! The beginning of a connection: the server's greeting, TLS, and a login by `caching_sha2_password`.
//!
//! ```text
//!   server                         client
//!   greeting (nonce)        ─▶
//!                           ◀─     request for TLS; both shake hands
//!                           ◀─     user, scrambled password
//!   "known" or "say it"     ─▶
//!                           ◀─     the password itself, if asked for
//!   OK                      ─▶
//! ```

use sha2::{Digest, Sha256};

use super::cursor::{Cursor, ERROR, refusal};
use super::packet::{MAX_PACKET, Packets};
use super::{Stream, WireError};

/// The version of the protocol.
const PROTOCOL: u64 = 10;
/// The only way to log in.
const PLUGIN: &[u8] = b"caching_sha2_password";
/// The nonce's length, in bytes.
const NONCE: usize = 20;
/// utf8mb4_0900_ai_ci.
const CHARSET: u8 = 255;

const PROTOCOL_41: u32 = 1 << 9;
const SSL: u32 = 1 << 11;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
const MULTI_STATEMENTS: u32 = 1 << 16;
const MULTI_RESULTS: u32 = 1 << 17;
const PLUGIN_AUTH: u32 = 1 << 19;
const DEPRECATE_EOF: u32 = 1 << 24;
/// What is asked for; every server since 5.7 can do it. LOCAL INFILE is not among it.
const WANTED: u32 = PROTOCOL_41
    | SSL
    | TRANSACTIONS
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PLUGIN_AUTH
    | DEPRECATE_EOF;

/// What the server greets with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    nonce: Vec<u8>,
}

/// Reads the greeting, and asks for TLS.
pub(super) async fn greet<S: Stream>(packets: &mut Packets<S>) -> Result<Greeting, WireError> {
    let greeting = read(&packets.read().await?)?;
    packets.write(&head()).await?;
    Ok(greeting)
}

/// Logs in, within TLS.
pub(super) async fn log_in<S: Stream>(
    packets: &mut Packets<S>,
    greeting: &Greeting,
    user: &str,
    password: &str,
) -> Result<(), WireError> {
    if user.contains('\0') || password.contains('\0') {
        return Err(WireError::Unreadable("a name and a password without zeros"));
    }
    let mut packet = head();
    packet.extend_from_slice(user.as_bytes());
    packet.push(0);
    let proof = scramble(password, &greeting.nonce);
    packet.push(u8::try_from(proof.len()).unwrap_or_default());
    packet.extend_from_slice(&proof);
    packet.extend_from_slice(PLUGIN);
    packet.push(0);
    packets.write(&packet).await?;
    // The server may switch to another nonce once, and ask for the password once.
    for _ in 0..4 {
        let answer = packets.read().await?;
        match answer.as_slice() {
            [0, ..] => return Ok(()),
            [ERROR, ..] => return Err(refusal(&answer)),
            [0xfe, rest @ ..] => packets.write(&switched(rest, password)?).await?,
            [1, 3] => {}
            [1, 4] => packets.write(&[password.as_bytes(), &[0]].concat()).await?,
            _ => break,
        }
    }
    Err(WireError::Unreadable("a step of caching_sha2_password"))
}

fn read(packet: &[u8]) -> Result<Greeting, WireError> {
    if packet.first() == Some(&ERROR) {
        return Err(refusal(packet));
    }
    let mut cursor = Cursor::new(packet, "a greeting of MySQL");
    if cursor.number(1)? != PROTOCOL {
        return Err(WireError::Unreadable("a greeting of MySQL"));
    }
    cursor.until_zero()?;
    cursor.take(4)?;
    let mut nonce = cursor.take(8)?.to_vec();
    cursor.take(1)?;
    let low = cursor.number(2)?;
    cursor.take(3)?;
    let able = low | cursor.number(2)? << 16;
    cursor.take(11)?;
    nonce.extend_from_slice(cursor.take(NONCE - 8)?);
    if able & u64::from(WANTED) != u64::from(WANTED) {
        return Err(WireError::Unreadable("a greeting with TLS and what MySQL can do since 5.7"));
    }
    Ok(Greeting { nonce })
}

/// The request for TLS, which is the head of the login as well.
fn head() -> Vec<u8> {
    let mut packet = WANTED.to_le_bytes().to_vec();
    packet.extend_from_slice(&u32::try_from(MAX_PACKET).unwrap_or(u32::MAX).to_le_bytes());
    packet.push(CHARSET);
    packet.extend_from_slice(&[0; 23]);
    packet
}

/// The answer to a server that names the way to log in, with another nonce.
fn switched(request: &[u8], password: &str) -> Result<Vec<u8>, WireError> {
    let mut cursor = Cursor::new(request, "a request for caching_sha2_password");
    if cursor.until_zero()? != PLUGIN {
        return Err(WireError::Unreadable("a request for caching_sha2_password"));
    }
    Ok(scramble(password, cursor.take(NONCE)?))
}

/// The proof that one knows a password: `SHA256(password) XOR SHA256(SHA256(SHA256(password)), nonce)`.
fn scramble(password: &str, nonce: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mask = Sha256::new().chain_update(twice).chain_update(nonce).finalize();
    once.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect()
}
