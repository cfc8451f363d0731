//! A folder of kubeconfigs whose credentials never come: each asks an issuer for a token that answers nothing, or begins a
//! long answer and does not end it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// How many there are.
const STRANGERS: usize = 1_000;
/// How much comes of an answer: hardly less than one may have.
const BEGUN_BYTES: usize = 120 << 10;

/// The folder, which is empty at first, and the issuer.
pub(super) struct Strangers {
    folder: PathBuf,
    kubeconfig: String,
    _task: AbortOnDropHandle<()>,
}

impl Strangers {
    pub(super) async fn start(folder: PathBuf) -> Result<Self> {
        fs::create_dir(&folder)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            for number in 0_usize.. {
                let Ok((stream, _)) = listener.accept().await else { break };
                while open.try_join_next().is_some() {}
                open.spawn(hang(stream, number % 4 != 0));
            }
        });
        let kubeconfig = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://{address}'}}}}]\n\
             users: [{{name: u, user: {{auth-provider: {{name: oidc, config: {{idp-issuer-url: \
             'http://{address}', client-id: c, refresh-token: t}}}}}}}}]\n\
             contexts: [{{name: NAME, context: {{cluster: c, user: u}}}}]\n"
        );
        Ok(Self { folder, kubeconfig, _task: AbortOnDropHandle::new(task) })
    }

    /// All of them come.
    pub(super) fn come(&self) -> Result<()> {
        for number in 0..STRANGERS {
            // Last by name, because what a member reports has a bound.
            let name = format!("z-stranger-{number}");
            fs::write(self.folder.join(&name), self.kubeconfig.replace("NAME", &name))?;
        }
        Ok(())
    }

    /// All of them go.
    pub(super) fn go(&self) -> Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

/// Holds a connection until the client ends it.
async fn hang(mut stream: TcpStream, begins: bool) {
    if begins && stream.read(&mut [0; 1024]).await.is_ok() {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", BEGUN_BYTES + 1);
        let _ended = stream.write_all((head + &" ".repeat(BEGUN_BYTES)).as_bytes()).await;
    }
    let _ended = stream.read_to_end(&mut Vec::new()).await;
}
