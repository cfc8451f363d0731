//! Runs a server until Ctrl-C: `cargo run -p leasehold-apiserver --example serve -- --port 6443`,
//! then `kubectl --kubeconfig ./kubeconfig get namespaces`.

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: leasehold_apiserver::Args,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Cli::parse().args;
    let server = args.builder().start().await?;
    std::fs::write(&args.kubeconfig, server.kubeconfig())?;
    println!("{} serves; kubeconfig: {}", server.url(), args.kubeconfig.display());
    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    Ok(())
}
