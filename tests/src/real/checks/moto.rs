//! moto, which stands in for services of AWS and is not ours. Checks ask it with boto3, not with our clients.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::harness::Scene;
use crate::harness::process::{self, ChildProcess, free_port};
use crate::harness::wait;

/// How long it may take to start.
const DEADLINE: Duration = Duration::from_secs(180);

/// A running moto.
pub(super) struct Moto {
    python: PathBuf,
    /// Where it serves, at loopback.
    pub(super) port: u16,
    pub(super) process: ChildProcess,
}

impl Moto {
    pub(super) async fn start(scene: &Scene) -> Result<Self> {
        let (port, folder) = (free_port()?, scene.tools().moto());
        let mut command = Command::new(folder.join("bin/moto_server"));
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let process = ChildProcess::spawn("moto", &command, &scene.logs())?;
        let mut moto = Self { python: folder.join("bin/python"), port, process };
        wait::until(DEADLINE, "moto to answer", async || {
            moto.process.check_alive()?;
            Ok(moto.ask("sqs.list_queues()").ok())
        })
        .await?;
        Ok(moto)
    }

    /// Runs lines of Python that have the clients `sqs` and `s3`; gives what they print.
    pub(super) fn ask(&self, lines: &str) -> Result<String> {
        let port = self.port;
        let script = format!(
            "import boto3\n\
             sqs, s3 = [boto3.client(name, region_name='eu-west-1', aws_access_key_id='test', \
             aws_secret_access_key='test', endpoint_url='http://127.0.0.1:{port}') \
             for name in ('sqs', 's3')]\n{lines}\n"
        );
        let said = process::run(Command::new(&self.python).args(["-c", &script]))?;
        Ok(said.trim().to_owned())
    }
}
