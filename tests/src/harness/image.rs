//! Container images without a builder: an OCI layout in a tarball. It holds one static binary and files of
//! this machine, as the image that `deploy/Dockerfile` describes, or a whole root file system.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use object::Object;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The image of the container that holds a Pod's namespaces.
pub const PAUSE: &str = "leasehold.test/pause:1";

/// The certificate authorities that our controllers trust when they call services outside of
/// Kubernetes: those that Debian selects.
pub const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The user of our images, without any rights.
const USER: &str = "65532:65532";

/// An image in a file.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
}

/// What the containers of an image run, unless their Pod says otherwise.
#[derive(Debug)]
pub struct Start<'a> {
    /// The program, and arguments that always precede those of the Pod.
    pub entrypoint: &'a [&'a str],
    /// The arguments if the Pod has none.
    pub arguments: &'a [&'a str],
    /// As user and group.
    pub user: &'a str,
    /// Where programs are looked for.
    pub path: &'a str,
}

impl Image {
    /// Packs `binary` and `files` as image `name` (with its tag) into folder `dir`. The files keep
    /// their paths. `variant` becomes a label, so that two images can differ in nothing else.
    ///
    /// # Errors
    /// If the binary or a file cannot be read, the binary needs libraries that the image does not
    /// have, or the tarball cannot be written.
    pub fn pack(
        name: &str,
        binary: &Path,
        files: &[&str],
        variant: &str,
        dir: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let program = binary.file_name().context("a program has a name")?.to_string_lossy();
        let content = read_static(binary)?;
        let mut layer = tar::Builder::new(tempfile::tempfile_in(dir)?);
        append(&mut layer, &program, &content, 0o755)?;
        for file in files {
            let content = fs::read(file).with_context(|| format!("read {file}"))?;
            append(&mut layer, file.trim_start_matches('/'), &content, 0o644)?;
        }
        let layer = layer.into_inner()?;
        let entrypoint = format!("/{program}");
        let start = Start { entrypoint: &[&entrypoint], arguments: &[], user: USER, path: "/" };
        let path = dir.join(format!("{program}-{}.tar", tag(name)));
        write_archive(&path, name, layer, &start, &json!({"leasehold.dev/variant": variant}))?;
        Ok(Self { path })
    }

    /// Packs static programs as `/usr/local/bin/NAME` of image `name` into the file `target`.
    pub fn pack_programs(
        name: &str,
        programs: &[PathBuf],
        start: &Start<'_>,
        target: &Path,
    ) -> Result<()> {
        let dir = target.parent().context("a file lies in a folder")?;
        let mut layer = tar::Builder::new(tempfile::tempfile_in(dir)?);
        for program in programs {
            let file = program.file_name().context("a program has a name")?.to_string_lossy();
            append(&mut layer, &format!("usr/local/bin/{file}"), &read_static(program)?, 0o755)?;
        }
        write_archive(target, name, layer.into_inner()?, start, &json!({}))
    }

    /// Packs the root file system in the tarball `root` as image `name` into the file `target`. The
    /// tarball may be larger than memory.
    pub fn pack_root(name: &str, root: &Path, start: &Start<'_>, target: &Path) -> Result<()> {
        let layer = File::open(root).with_context(|| format!("open {}", root.display()))?;
        write_archive(target, name, layer, start, &json!({}))
    }

    /// The image in a tarball that was packed before.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The tarball.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes the image `name` of one layer to `target`.
fn write_archive(
    target: &Path,
    name: &str,
    mut layer: File,
    start: &Start<'_>,
    labels: &Value,
) -> Result<()> {
    let (layer_digest, layer_size) = digest_file(&mut layer)?;
    let (architecture, tag) = (architecture(), tag(name));
    let config = serde_json::to_vec(&json!({
        "architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": start.entrypoint, "Cmd": start.arguments, "User": start.user,
            "Env": [format!("PATH={}", start.path)], "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer_digest, "size": layer_size,
        }],
    }))?;
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    entry["annotations"] = json!({
        "io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag,
    });
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;

    let mut archive = tar::Builder::new(File::create(target)?);
    append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    append(&mut archive, "index.json", &index, 0o644)?;
    for blob in [&config, &manifest] {
        append(&mut archive, &blob_path(&digest(blob)), blob, 0o644)?;
    }
    let mut header = tar::Header::new_gnu();
    header.set_size(layer_size);
    header.set_mode(0o644);
    archive.append_data(&mut header, blob_path(&layer_digest), &layer)?;
    Ok(archive.into_inner()?.flush()?)
}

/// The tag in an image's name.
fn tag(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or("latest")
}

/// Where an image has the blob with this digest.
fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

/// A program that needs no libraries.
fn read_static(program: &Path) -> Result<Vec<u8>> {
    let read = || format!("read {}", program.display());
    let content = fs::read(program).with_context(read)?;
    ensure!(
        is_static(&content).with_context(read)?,
        "{} is linked dynamically, and the image has no libraries: build it with \
         RUSTFLAGS=\"-C target-feature=+crt-static\" and an explicit --target, as .ci/run does",
        program.display(),
    );
    Ok(content)
}

fn append<W: Write>(tar: &mut tar::Builder<W>, name: &str, data: &[u8], mode: u32) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(mode);
    Ok(tar.append_data(&mut header, name, data)?)
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(blob), "size": blob.len()})
}

fn digest(blob: &[u8]) -> String {
    name_digest(Sha256::new_with_prefix(blob))
}

/// The digest and the size of a file, which is left at its start.
fn digest_file(file: &mut File) -> Result<(String, u64)> {
    file.rewind()?;
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        size += read as u64;
    }
    file.rewind()?;
    Ok((name_digest(hash), size))
}

fn name_digest(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The machine's architecture, as container images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Whether a program starts without an interpreter, which would load its libraries.
fn is_static(program: &[u8]) -> Result<bool> {
    Ok(object::File::parse(program)?.section_by_name(".interp").is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_digest_leads_to_a_blob() {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("program");
        fs::write(&binary, elf()).unwrap();
        let file = dir.path().join("authorities");
        fs::write(&file, "whom to trust").unwrap();
        let file = file.to_str().unwrap();
        let image =
            Image::pack("example.test/program:2", &binary, &[file], "a", dir.path()).unwrap();
        let mut archive = tar::Archive::new(File::open(image.path()).unwrap());
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(name, content);
        }
        let blob = |descriptor: &Value| {
            let path = descriptor["digest"].as_str().unwrap().replace(':', "/");
            files[&format!("blobs/{path}")].clone()
        };
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let index = json(&files["index.json"]);
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"][0], "/program");
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = blob(&manifest["layers"][0]);
        let mut layer = tar::Archive::new(layer.as_slice());
        let entries = layer.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = format!("/{}", entry.path().unwrap().display());
            (path, entry.size(), entry.header().mode().unwrap())
        });
        assert_eq!(
            entries.collect::<Vec<_>>(),
            [("/program".to_owned(), 64, 0o755), (file.to_owned(), 13, 0o644)]
        );
    }

    #[test]
    #[cfg(not(target_feature = "crt-static"))]
    fn a_program_that_needs_libraries_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let this = std::env::current_exe().unwrap();
        let error = Image::pack("example.test/program:2", &this, &[], "a", dir.path());
        let error = error.unwrap_err();
        assert!(error.to_string().contains("is linked dynamically"), "{error}");
    }

    /// Nothing but the header of a 64-bit program without sections.
    fn elf() -> [u8; 64] {
        let mut header = [0; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (header[16], header[18], header[20], header[52]) = (2, 62, 1, 64);
        header
    }
}
