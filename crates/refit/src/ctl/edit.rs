//! `refitctl edit`: a resource in the editor, and back into the store if nobody has changed it meanwhile.

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use refit_proto::resources::v1 as wire;
use refit_types::{Kind, Resource};
use serde_json::{Value, json};
use tonic::Code;

use super::Global;
use super::consent::Consent;
use super::resources::{
    Client, MAX_FILE_BYTES, Reference, canonical, check, document, fetch, name_of, parsed, shown_name, warn,
};
use crate::exit::Failure;
use crate::output;

/// Opens a resource in $VISUAL, $EDITOR or vi, and stores it when nobody has changed it meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl edit cluster_maintenance_config\n  \
    EDITOR=nano refitctl edit channel/stable/cloud")]
pub(crate) struct Edit {
    /// What to change; the name may be left out where there can be only one
    #[arg(value_name = "KIND[/NAME]")]
    what: Reference,
    #[command(flatten)]
    consent: Consent,
}

impl Edit {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let kind = self.what.kind;
        let Some(name) = self.what.name.clone().or(kind.singleton().map(Into::into)) else {
            return Err(Failure::usage(format!("which {kind}? expected KIND/NAME")));
        };
        let mut client = Client::new(global.target.connect().await?);
        let stored = fetch(&mut client, kind, &name).await?;
        let revision = stored.as_ref().map(|found| found["metadata"]["revision"].clone());
        let before = output::yaml(&match stored {
            Some(found) => found,
            None => beginning(kind, &name)?,
        })?;
        let draft = Draft::new(kind, &before)?;
        let edited = loop {
            let text = draft.edited()?;
            if text == before.as_bytes() {
                draft.discard();
                return output::done(global.format, &json!({ "changed": false }), "Nothing was changed.");
            }
            match read(&text, kind, &name) {
                Ok(edited) => break edited,
                Err(failure) if may_ask() => ask_again(failure)?,
                Err(failure) => return Err(draft.kept(failure)),
            }
        };
        let written = match self.store(&mut client, edited, revision).await {
            Ok(written) => written,
            Err(failure) => return Err(draft.kept(failure)),
        };
        draft.discard();
        output::done(
            global.format,
            &written,
            format!("{} has been stored.", shown_name(kind, name_of(&written))),
        )
    }

    async fn store(
        &self,
        client: &mut Client,
        mut edited: Value,
        revision: Option<Value>,
    ) -> Result<Value, Failure> {
        let kind = self.what.kind.to_string();
        let Consent { allow_major_downgrade, allow_missing, even_if_paused } = self.consent;
        let answer = if let Some(revision) = revision {
            // Whatever was done to it in the editor: this is what the change was made from.
            edited["metadata"]["revision"] = revision;
            let resource = Some(wire::Resource { json: canonical(&edited)?, ..Default::default() });
            let request = wire::UpdateResourceRequest {
                kind,
                resource,
                allow_major_downgrade,
                allow_missing,
                even_if_paused,
            };
            client.update_resource(request).await
        } else {
            let resource = Some(wire::Resource { json: canonical(&edited)?, ..Default::default() });
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
            Code::Aborted | Code::AlreadyExists | Code::NotFound => {
                Failure::failed(format!("{} was changed by someone else meanwhile", self.what.kind))
            }
            _ => status.into(),
        });
        let answer = answer?.into_inner();
        warn(&answer);
        document(&answer)
    }
}

/// What the editor shows while nothing is stored.
fn beginning(kind: Kind, name: &str) -> Result<Value, Failure> {
    match (kind.defaults(), kind.info().draft) {
        (Some(defaults), _) => serde_json::to_value(defaults.full_document(None)).map_err(Failure::failed),
        (None, Some(spec)) => {
            Ok(json!({ "kind": kind.name(), "version": kind.document_version(), "spec": spec() }))
        }
        (None, None) => {
            Err(Failure::failed(format!("there is no {kind} {name:?}; `refitctl create` makes one")))
        }
    }
}

/// The document that a text holds, if it is still the one that was to be changed.
fn read(text: &[u8], kind: Kind, name: &str) -> Result<Value, Failure> {
    let shown = Path::new("the text");
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::failed(format!(
            "the text is larger than the {MAX_FILE_BYTES} bytes that are allowed"
        )));
    }
    let mut documents = parsed(text, "the text")?;
    check(shown, &documents, Resource::from_document)?;
    let (Some(edited), true) = (documents.pop(), documents.is_empty()) else {
        return Err(Failure::failed("the text holds several documents; expected one"));
    };
    let found = Resource::from_document(edited.clone())
        .map(|(resource, _)| (resource.kind(), resource.name() == name));
    match found {
        Ok((found, true)) if found == kind => Ok(edited),
        _ => Err(Failure::failed(format!(
            "the text is no longer of {kind} {name:?}; kind and name cannot be edited"
        ))),
    }
}

fn may_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Goes on if the person wants to mend what is wrong; else fails with it.
fn ask_again(failure: Failure) -> Result<(), Failure> {
    anstream::eprint!("{failure}\nEdit again? [Y/n] ");
    std::io::stderr().flush().map_err(Failure::failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(Failure::failed)?;
    match answer.trim().to_lowercase().as_str() {
        "" | "y" | "yes" if !answer.is_empty() => Ok(()),
        _ => Err(Failure::failed("nothing was changed")),
    }
}

/// The text under the editor, in a directory that only its owner can look into.
struct Draft {
    directory: PathBuf,
    file: PathBuf,
}

impl Draft {
    fn new(kind: Kind, text: &str) -> Result<Self, Failure> {
        let unique = format!("refitctl-{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
        let directory = std::env::temp_dir().join(unique);
        let file = directory.join(format!("{kind}.yaml"));
        let failed = |error| Failure::failed(format!("{} cannot be written: {error}", file.display()));
        fs::DirBuilder::new().mode(0o700).create(&directory).map_err(failed)?;
        let mut open =
            fs::File::options().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
        open.write_all(text.as_bytes()).map_err(failed)?;
        Ok(Self { directory, file })
    }

    /// Opens the editor, waits for its end, and gives the text as it is then.
    fn edited(&self) -> Result<Vec<u8>, Failure> {
        let mut chosen = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
        let editor = chosen.find(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".into());
        // As other programs do, so that the editor may have arguments.
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(&self.file);
        let status = command.status().map_err(|error| self.kept(Failure::failed(error)))?;
        if !status.success() {
            return Err(self.kept(Failure::failed(format!("the editor {editor:?} failed: {status}"))));
        }
        let unreadable = |error| Failure::failed(format!("{} cannot be read: {error}", self.file.display()));
        fs::read(&self.file).map_err(unreadable)
    }

    /// Adds to a failure where the work is that would be lost.
    fn kept(&self, failure: Failure) -> Failure {
        Failure::failed(format!(
            "{failure}\nNothing was changed; the text is kept in {}",
            self.file.display()
        ))
    }

    fn discard(self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
