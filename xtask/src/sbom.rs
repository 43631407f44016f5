//! `cargo xtask sbom`: the list of what is inside the `strand` binary (software bill of materials), as CycloneDX 1.5
//! in JSON.
//!
//! The list comes from `cargo metadata` and `Cargo.lock`: every crate that the binary links, with version, licence
//! and checksum, and which crate needs which. The console's uPlot is added. Crates that only tests, benchmarks or the
//! build use are left out. The file has no time and no serial number, so the same commit gives the same bytes.
//!
//! `cargo-cyclonedx` is not used, because it must be installed first, writes a file beside each of the 20 manifests,
//! and does not know uPlot.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The package with the binary.
const ROOT: &str = "strand-server";
/// The name of the binary.
const NAME: &str = "strand";
/// The target that the package is built for. Crates for other systems are left out.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The console's library of charts. Its first line gives the version.
const UPLOT: &str = "crates/http/console/uplot.js";

/// Why the list cannot be made.
#[derive(Debug, thiserror::Error)]
enum SbomError {
    /// A program or a file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// `cargo metadata` failed, with this text.
    #[error("cargo metadata: {0}")]
    Metadata(String),
    /// The output of `cargo metadata`, or a file, does not have this part.
    #[error("missing in the input: {0}")]
    Missing(&'static str),
    /// The output of `cargo metadata` is not JSON.
    #[error("cargo metadata: {0}")]
    Json(#[from] serde_json::Error),
}

/// Prints the list.
pub fn run() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    match make_list(root) {
        Ok(list) => {
            println!("{list:#}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("sbom: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the list for the workspace at `root`.
fn make_list(root: &Path) -> Result<Value, SbomError> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(SbomError::Metadata(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let uplot = std::fs::read_to_string(root.join(UPLOT))?;
    list(&metadata, &checksums(&lock), &uplot)
}

/// Makes the list from the output of `cargo metadata`, the checksums of Cargo.lock and the text of uPlot.
fn list(
    metadata: &Value,
    sums: &BTreeMap<(String, String), String>,
    uplot: &str,
) -> Result<Value, SbomError> {
    let packages: BTreeMap<&str, &Value> = by_id(&metadata["packages"])?;
    let nodes: BTreeMap<&str, &Value> = by_id(&metadata["resolve"]["nodes"])?;
    let root = packages.values().copied().find(|package| package["name"] == ROOT);
    let root = root.ok_or(SbomError::Missing("package of the binary"))?;
    let root_id = text(root, "id")?;

    let mut linked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut to_see = vec![root_id];
    while let Some(id) = to_see.pop() {
        if linked.contains_key(id) {
            continue;
        }
        let node = nodes.get(id).ok_or(SbomError::Missing("node of a package"))?;
        let needs: Vec<&str> = array(&node["deps"])?
            .iter()
            .filter(|dependency| is_linked(dependency))
            .filter_map(|dependency| dependency["pkg"].as_str())
            .collect();
        to_see.extend(&needs);
        linked.insert(id, needs);
    }

    let mut components = vec![uplot_component(uplot)?];
    let mut dependencies = Vec::new();
    for (id, needs) in &linked {
        let reference = |id: &str| packages.get(id).map(|package| purl(package)).transpose();
        let needs: BTreeSet<String> =
            needs.iter().map(|id| reference(id)).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let package = packages.get(id).ok_or(SbomError::Missing("package of a node"))?;
        let mut needs: Vec<String> = needs.into_iter().collect();
        if *id == root_id {
            needs.push(text(&components[0], "bom-ref")?.to_owned());
        } else {
            components.push(component(package, sums)?);
        }
        dependencies.push(json!({ "ref": purl(package)?, "dependsOn": needs }));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": purl(root)?,
            "name": NAME,
            "version": root["version"],
            "licenses": [{ "expression": root["license"] }],
        } },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// True for a dependency that is linked into the binary, and is not only for tests or the build.
fn is_linked(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

/// The list's entry for one crate.
fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Result<Value, SbomError> {
    let (name, version, purl) = (text(package, "name")?, text(package, "version")?, purl(package)?);
    let mut entry = Map::new();
    entry.insert("type".into(), "library".into());
    entry.insert("bom-ref".into(), purl.clone().into());
    entry.insert("name".into(), name.into());
    entry.insert("version".into(), version.into());
    entry.insert("purl".into(), purl.into());
    if let Some(license) = package["license"].as_str() {
        // Old manifests write `MIT/Apache-2.0`, which SPDX no longer allows.
        entry.insert("licenses".into(), json!([{ "expression": license.replace('/', " OR ") }]));
    }
    if let Some(sum) = sums.get(&(name.to_owned(), version.to_owned())) {
        entry.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": sum }]));
    }
    Ok(Value::Object(entry))
}

fn uplot_component(source: &str) -> Result<Value, SbomError> {
    let first = source.lines().next().unwrap_or_default();
    let version =
        first.split_once("(v").and_then(|(_, rest)| rest.split_once(')')).map(|(version, _)| version);
    let version = version.ok_or(SbomError::Missing("version in uplot.js"))?;
    let purl = format!("pkg:npm/uplot@{version}");
    Ok(json!({
        "type": "library", "bom-ref": purl, "name": "uplot", "version": version, "purl": purl,
        "licenses": [{ "expression": "MIT" }],
    }))
}

/// The package URL of a crate, which identifies the crate in the list.
fn purl(package: &Value) -> Result<String, SbomError> {
    Ok(format!("pkg:cargo/{}@{}", text(package, "name")?, text(package, "version")?))
}

/// The SHA-256 of each crate from the registry, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.map(|value| value.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

fn by_id(values: &Value) -> Result<BTreeMap<&str, &Value>, SbomError> {
    array(values)?.iter().map(|value| Ok((text(value, "id")?, value))).collect()
}

fn array(value: &Value) -> Result<&Vec<Value>, SbomError> {
    value.as_array().ok_or(SbomError::Missing("list in cargo's metadata"))
}

fn text<'a>(value: &'a Value, name: &'static str) -> Result<&'a str, SbomError> {
    value[name].as_str().ok_or(SbomError::Missing(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_exactly_the_linked_crates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
        let list = make_list(root).expect("the workspace can be listed");
        let components = list["components"].as_array().expect("a list");
        let named = |name: &str| components.iter().find(|component| component["name"] == name);
        for name in ["uplot", "tantivy", "strand-chain", "tikv-jemallocator", "mlua"] {
            assert!(named(name).is_some(), "{name} is linked");
        }
        for name in ["strand-server", "strand-testkit", "strand-bench", "xtask", "cc"] {
            assert!(named(name).is_none(), "{name} is not linked");
        }
        let tantivy = named("tantivy").expect("it is linked");
        assert_eq!(tantivy["hashes"][0]["content"].as_str().map(str::len), Some(64));

        let mut known: BTreeSet<&str> = components.iter().filter_map(|c| c["bom-ref"].as_str()).collect();
        assert_eq!(known.len(), components.len(), "each component has a name of its own");
        known.extend(list["metadata"]["component"]["bom-ref"].as_str());
        for dependency in list["dependencies"].as_array().expect("a list") {
            for needed in dependency["dependsOn"].as_array().expect("a list") {
                assert!(
                    needed.as_str().is_some_and(|needed| known.contains(needed)),
                    "{needed} is a component"
                );
            }
        }
        for component in components {
            assert!(component["licenses"][0]["expression"].is_string(), "{component} has a licence");
        }
    }
}
