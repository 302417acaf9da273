use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_types::{Kind, Resource};
use serde_json::Value;
use tonic::Code;

use super::Global;
use crate::exit::Failure;
use crate::output::{self, Format};

/// Larger files are no resources.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A kind of resource, or one resource: `channels`, `channel/stable/cloud`.
#[derive(Debug, Clone)]
struct Reference {
    kind: Kind,
    name: Option<String>,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind, Some(name.to_owned())),
            None => (text, None),
        };
        if name.as_deref() == Some("") {
            return Err(format!("{text:?} names no resource; expected KIND/NAME"));
        }
        let kind = kind.parse::<Kind>().map_err(|error| error.to_string())?;
        Ok(Self { kind, name })
    }
}

/// Shows all resources of a kind, or one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refitctl get channels\n  refitctl get channel/stable/cloud --format yaml"
)]
pub(crate) struct Get {
    /// What to show: KIND or KIND/NAME
    #[arg(value_name = "KIND[/NAME]")]
    what: Reference,
}

impl Get {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let kind = self.what.kind.to_string();
        if let Some(name) = self.what.name {
            let request = wire::GetResourceRequest { kind, name };
            let found = document(&client.get_resource(request).await?.into_inner())?;
            return output::show(global.format, &found, || text(std::slice::from_ref(&found)));
        }
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = wire::ListResourcesRequest { kind: kind.clone(), page_size: 0, page_token };
            let page = client.list_resources(request).await?.into_inner();
            for resource in &page.resources {
                all.push(document(resource)?);
            }
            if page.next_page_token.is_empty() {
                break;
            }
            page_token = page.next_page_token;
        }
        if global.format == Format::Yaml {
            let documents = all.iter().map(output::yaml).collect::<Result<Vec<_>, _>>()?;
            return output::print(&documents.join("---\n"));
        }
        output::show(global.format, &all, || text(&all))
    }
}

/// Creates the resources of a file; several documents are separated by `---`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl create channel.yaml\n  \
    refitctl get channels --format yaml | refitctl create --force -")]
pub(crate) struct Create {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace what exists
    #[arg(long, short)]
    force: bool,
}

impl Create {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let documents = read_documents(&self.file)?;
        check(&self.file, &documents)?;
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let mut stored = Vec::new();
        for document in documents {
            let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            let resource = Some(wire::Resource { json: document.to_string() });
            let answer = match self.force {
                true => client.upsert_resource(wire::UpsertResourceRequest { kind, resource }).await,
                false => client.create_resource(wire::CreateResourceRequest { kind, resource }).await,
            };
            let answer = answer.map_err(|status| match status.code() {
                Code::AlreadyExists => {
                    let (kind, name) = (field(&document, "kind"), name_of(&document));
                    Failure::failed(format!("{kind} {name:?} exists already; replace it with --force"))
                }
                _ => status.into(),
            });
            let written = self::document(&answer?.into_inner())?;
            if global.format == Format::Text {
                let verb = if self.force { "stored" } else { "created" };
                output::print(&format!(
                    "{} {:?} has been {verb}.",
                    field(&written, "kind"),
                    name_of(&written)
                ))?;
            }
            stored.push(written);
        }
        match global.format {
            Format::Text => Ok(()),
            format => output::show(format, &stored, String::new),
        }
    }
}

/// Deletes one resource.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  refitctl rm channel/stable/cloud")]
pub(crate) struct Rm {
    /// What to delete
    #[arg(value_name = "KIND/NAME")]
    what: Reference,
}

impl Rm {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let Reference { kind, name: Some(name) } = self.what else {
            return Err(Failure::usage(format!("which {}? expected KIND/NAME", self.what.kind)));
        };
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let request = wire::DeleteResourceRequest {
            kind: kind.to_string(),
            name: name.clone(),
            revision: String::new(),
        };
        client.delete_resource(request).await?;
        let answer = serde_json::json!({ "kind": kind.name(), "name": name });
        output::done(global.format, &answer, format!("{kind} {name:?} has been deleted."))
    }
}

/// The documents of a file, with the place of the first thing that is not YAML.
fn read_documents(file: &Path) -> Result<Vec<Value>, Failure> {
    let shown = shown(file);
    let unreadable = |error| Failure::failed(format!("{shown} cannot be read: {error}"));
    let mut bytes = Vec::new();
    let taken = if file == Path::new("-") {
        std::io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)
    } else {
        let file = std::fs::File::open(file).map_err(unreadable)?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)
    };
    taken.map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::failed(format!(
            "{shown} is larger than the {MAX_FILE_BYTES} bytes that are allowed"
        )));
    }
    let text = str::from_utf8(&bytes)
        .map_err(|_| Failure::failed(format!("{shown} cannot be read: it is not text in UTF-8")))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let error = error.to_string();
        Failure::failed(format!("{shown}: {}", error.strip_prefix("error: ").unwrap_or(&error)))
    })?;
    // `get --format json` gives a list, which must be as good as several documents.
    let flat = documents.into_iter().flat_map(|document| match document {
        Value::Array(list) => list,
        other => vec![other],
    });
    let documents: Vec<Value> = flat.collect();
    match documents.is_empty() {
        true => Err(Failure::failed(format!("{shown} holds no document"))),
        false => Ok(documents),
    }
}

fn shown(file: &Path) -> String {
    if file == Path::new("-") { "standard input".into() } else { file.display().to_string() }
}

/// Refuses faulty documents, all of them at once and before any is stored.
fn check(file: &Path, documents: &[Value]) -> Result<(), Failure> {
    let mut told = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let Err(faults) = Resource::from_document(document.clone()) else { continue };
        let which = if documents.len() > 1 { format!("document {}: ", number + 1) } else { String::new() };
        told.extend(faults.list().iter().map(|fault| format!("\n  {which}{fault}")));
    }
    match told.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format!("{} cannot be used:{}", shown(file), told.concat()))),
    }
}

fn document(resource: &wire::Resource) -> Result<Value, Failure> {
    serde_json::from_str(&resource.json)
        .map_err(|error| Failure::failed(format!("the server sent a document that cannot be read: {error}")))
}

fn field<'v>(document: &'v Value, name: &str) -> &'v str {
    document.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn name_of(document: &Value) -> &str {
    document.get("metadata").map_or("", |metadata| field(metadata, "name"))
}

fn text(documents: &[Value]) -> String {
    if documents.is_empty() {
        return "There is none.".into();
    }
    let rows = documents.iter().map(|document| {
        let metadata = document.get("metadata").unwrap_or(&Value::Null);
        let spec = document.get("spec").unwrap_or(&Value::Null);
        let critical = spec.get("critical").and_then(Value::as_bool).unwrap_or_default();
        [
            field(metadata, "name").to_owned(),
            field(spec, "version").to_owned(),
            if critical { "yes" } else { "no" }.into(),
            field(metadata, "revision").to_owned(),
            field(metadata, "description").to_owned(),
        ]
    });
    output::table(["CHANNEL", "VERSION", "CRITICAL", "REVISION", "DESCRIPTION"], rows)
}
