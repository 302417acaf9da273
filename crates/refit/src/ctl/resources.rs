//! `refitctl get`, `create` and `rm`: resources of any kind as documents. What differs between kinds is asked of
//! `refit_types::KindInfo`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_types::{Kind, Resource, ValidationErrors};
use serde_json::Value;
use tonic::Code;

use super::Global;
use super::consent::Consent;
use crate::exit::Failure;
use crate::output::{self, Format};

pub(super) type Client = ResourceServiceClient<tonic::transport::Channel>;

/// Larger files are no resources.
pub(super) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A kind of resource, or one resource: `channels`, `channel/stable/cloud`.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) kind: Kind,
    pub(super) name: Option<String>,
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
    after_help = "Examples:\n  refitctl get channels\n  refitctl get channel/stable/cloud --format yaml\n  \
    refitctl get cluster_maintenance_config --defaults"
)]
pub(crate) struct Get {
    /// What to show: KIND or KIND/NAME
    #[arg(value_name = "KIND[/NAME]")]
    what: Reference,
    /// Show also the fields that are at their default
    #[arg(long)]
    defaults: bool,
}

impl Get {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let kind = self.what.kind;
        if let Some(name) = self.what.name.or(kind.singleton().map(Into::into)) {
            let Some(found) = fetch(&mut client, kind, &name).await? else {
                return show_absent(global.format, kind, &name);
            };
            let found = if self.defaults { with_defaults(found)? } else { found };
            return output::show(global.format, &found, || text(kind, std::slice::from_ref(&found)));
        }
        let kind = kind.to_string();
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = wire::ListResourcesRequest { kind: kind.clone(), page_size: 0, page_token };
            let page = client.list_resources(request).await?.into_inner();
            for resource in &page.resources {
                let found = document(resource)?;
                all.push(if self.defaults { with_defaults(found)? } else { found });
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
        output::show(global.format, &all, || text(self.what.kind, &all))
    }
}

/// The document of that name, unless there is none.
pub(super) async fn fetch(client: &mut Client, kind: Kind, name: &str) -> Result<Option<Value>, Failure> {
    let request = wire::GetResourceRequest { kind: kind.to_string(), name: name.to_owned() };
    match client.get_resource(request).await {
        Ok(found) => document(&found.into_inner()).map(Some),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}

/// What holds while nothing is stored, if anything does.
fn show_absent(format: Format, kind: Kind, name: &str) -> Result<(), Failure> {
    let Some(defaults) = kind.defaults() else {
        return Err(Failure::failed(match kind.singleton() {
            Some(_) => format!("there is no {kind}; `refitctl edit {kind}` makes one"),
            None => format!("there is no {kind} {name:?}"),
        }));
    };
    let note = format!("No {kind} is stored; these are the defaults.");
    let document = defaults.full_document(None);
    match format {
        Format::Json => anstream::eprintln!("{note}"),
        Format::Text | Format::Yaml => output::print(&format!("# {note}"))?,
    }
    let yaml = output::yaml(&document)?;
    output::show(format, &document, || yaml)
}

fn with_defaults(found: Value) -> Result<Value, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("the server sent a document that cannot be read: {error}"))
    };
    let (resource, revision) = Resource::from_document(found).map_err(|errors| unreadable(&errors))?;
    serde_json::to_value(resource.full_document(revision)).map_err(|error| unreadable(&error))
}

/// Creates the resources of a file; several documents are separated by `---`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl create channel.yaml\n  \
    refitctl get channels --format yaml | refitctl create --force -")]
pub(crate) struct Create {
    /// The file, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace what exists, unless it has changed since the revision that the document names
    #[arg(long, short)]
    force: bool,
    #[command(flatten)]
    consent: Consent,
}

impl Create {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let documents = read_documents(&self.file)?;
        check(&self.file, &documents, Resource::from_new_document)?;
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let mut stored = Vec::new();
        for document in documents {
            let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            let resource = Some(wire::Resource { json: canonical(&document)?, ..Default::default() });
            let Consent { allow_major_downgrade, allow_missing, even_if_paused } = self.consent;
            let answer = if self.force {
                let request = wire::UpsertResourceRequest {
                    kind,
                    resource,
                    allow_major_downgrade,
                    allow_missing,
                    even_if_paused,
                };
                client.upsert_resource(request).await
            } else {
                let request = wire::CreateResourceRequest {
                    kind,
                    resource,
                    allow_major_downgrade,
                    allow_missing,
                    even_if_paused,
                };
                client.create_resource(request).await
            };
            let answer = answer.map_err(|status| match status.code() {
                Code::AlreadyExists => {
                    let kind = field(&document, "kind");
                    let what = match name_of(&document) {
                        "" => kind.to_owned(),
                        name => format!("{kind} {name:?}"),
                    };
                    Failure::failed(format!("{what} exists already; replace it with --force"))
                }
                _ => status.into(),
            });
            let answer = answer?.into_inner();
            let written = self::document(&answer)?;
            if global.format == Format::Text {
                let verb = if self.force { "stored" } else { "created" };
                let kind: Kind = field(&written, "kind").parse().map_err(Failure::failed)?;
                output::print(&format!("{} has been {verb}.", shown_name(kind, name_of(&written))))?;
            }
            warn(&answer);
            stored.push(written);
        }
        match global.format {
            Format::Text => Ok(()),
            format => output::show(format, &stored, String::new),
        }
    }
}

/// Tells what the server warned of. On standard error, so that it is no part of what was asked for.
pub(super) fn warn(answer: &wire::Resource) {
    for warning in &answer.warnings {
        anstream::eprintln!("warning: {warning}");
    }
}

/// A resource as people call it: by its kind alone, where there is only one.
pub(super) fn shown_name(kind: Kind, name: &str) -> String {
    match kind.singleton() {
        Some(_) => kind.name().to_owned(),
        None => format!("{kind} {name:?}"),
    }
}

/// Deletes one resource.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  refitctl rm channel/stable/cloud")]
pub(crate) struct Rm {
    /// What to delete; the name may be left out where there can be only one
    #[arg(value_name = "KIND/NAME")]
    what: Reference,
}

impl Rm {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let kind = self.what.kind;
        let Some(name) = self.what.name.or(kind.singleton().map(Into::into)) else {
            return Err(Failure::usage(format!("which {kind}? expected KIND/NAME")));
        };
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let request = wire::DeleteResourceRequest {
            kind: kind.to_string(),
            name: name.clone(),
            revision: String::new(),
        };
        client.delete_resource(request).await?;
        let answer = serde_json::json!({ "kind": kind.name(), "name": name });
        output::done(global.format, &answer, format!("{} has been deleted.", shown_name(kind, &name)))
    }
}

/// The documents of a file, with the place of the first thing that is not YAML.
pub(super) fn read_documents(file: &Path) -> Result<Vec<Value>, Failure> {
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
    parsed(&bytes, &shown)
}

/// The documents of a text, of which `shown` says where it is from.
pub(super) fn parsed(bytes: &[u8], shown: &str) -> Result<Vec<Value>, Failure> {
    let text = str::from_utf8(bytes)
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

/// The resources of a file; those that are not valid are refused, all of them at once.
pub(super) fn read_resources(file: &Path) -> Result<Vec<Resource>, Failure> {
    let documents = read_documents(file)?;
    check(file, &documents, Resource::from_document)?;
    let read = documents.into_iter().filter_map(|document| Resource::from_document(document).ok());
    Ok(read.map(|(resource, _)| resource).collect())
}

/// The document as it is stored. Older servers take a plain number of hosts for a percentage; they refuse what is written
/// out.
pub(super) fn canonical(document: &Value) -> Result<String, Failure> {
    let (resource, revision) = Resource::from_document(document.clone()).map_err(Failure::failed)?;
    serde_json::to_string(&resource.document(revision)).map_err(Failure::failed)
}

fn shown(file: &Path) -> String {
    if file == Path::new("-") { "standard input".into() } else { file.display().to_string() }
}

/// Reads a document, for what is to be done with it.
pub(super) type Reader = fn(Value) -> Result<(Resource, Option<String>), ValidationErrors>;

/// Refuses documents that are not valid, all of them at once and before any is stored.
pub(super) fn check(file: &Path, documents: &[Value], read: Reader) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for (number, document) in documents.iter().enumerate() {
        let Err(errors) = read(document.clone()) else { continue };
        let which = if documents.len() > 1 { format!("document {}: ", number + 1) } else { String::new() };
        lines.extend(errors.to_string().lines().map(|error| format!("\n  {which}{error}")));
    }
    match lines.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format!("{} cannot be used:{}", shown(file), lines.concat()))),
    }
}

pub(super) fn document(resource: &wire::Resource) -> Result<Value, Failure> {
    serde_json::from_str(&resource.json)
        .map_err(|error| Failure::failed(format!("the server sent a document that cannot be read: {error}")))
}

fn field<'v>(document: &'v Value, name: &str) -> &'v str {
    document.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn name_of(document: &Value) -> &str {
    document.get("metadata").map_or("", |metadata| field(metadata, "name"))
}

fn text(kind: Kind, documents: &[Value]) -> String {
    let columns = kind.info().columns;
    if documents.is_empty() {
        return "There is none.".into();
    }
    if columns.is_empty() {
        let documents = documents.iter().filter_map(|document| output::yaml(document).ok());
        return documents.collect::<Vec<_>>().join("---\n");
    }
    let headings: Vec<&str> = columns.iter().map(|column| column.heading).collect();
    let row = |document| columns.iter().map(|column| column.value(document)).collect();
    output::table_of(&headings, documents.iter().map(row))
}
