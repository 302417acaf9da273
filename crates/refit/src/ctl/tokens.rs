//! `refitctl tokens`: lists and deletes join tokens. Their secrets are never shown.

use jiff::Timestamp;
use refit_proto::nodes::v1::node_service_client::NodeServiceClient;
use refit_proto::nodes::v1::{DeleteTokenRequest, ListTokensRequest};
use serde::Serialize;

use super::Global;
use crate::exit::Failure;
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the tokens by which hosts can join, without their secrets
    #[command(after_help = "Example:\n  refitctl tokens ls")]
    Ls,
    /// Delete a token: nobody joins with it any more
    #[command(after_help = "Example:\n  refitctl tokens rm 3f2a9c01b7de")]
    Rm {
        /// Its name, as `tokens ls` shows it
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Serialize)]
struct Token {
    name: String,
    roles: Vec<String>,
    expires: Option<Timestamp>,
}

impl Command {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = NodeServiceClient::new(global.target.connect().await?);
        let Self::Rm { name } = self else {
            let (mut all, mut page_token) = (Vec::new(), String::new());
            loop {
                let page =
                    client.list_tokens(ListTokensRequest { page_size: 0, page_token }).await?.into_inner();
                all.extend(page.tokens.into_iter().map(|token| Token {
                    roles: token.role_texts(),
                    name: token.name,
                    expires: super::timestamp(token.expires),
                }));
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    break;
                }
            }
            return output::show(global.format, &all, || text(&all, Timestamp::now()));
        };
        client.delete_token(DeleteTokenRequest { name: name.clone() }).await?;
        let answer = serde_json::json!({ "name": name });
        output::done(global.format, &answer, format!("The token {name} has been deleted."))
    }
}

fn text(tokens: &[Token], now: Timestamp) -> String {
    if tokens.is_empty() {
        return "There is no token. Make one with `refitctl nodes add`.".into();
    }
    let rows = tokens.iter().map(|token| {
        let until = token
            .expires
            .map_or_else(|| "never (from a server's configuration)".into(), |at| output::moment(at, now));
        [token.name.clone(), token.roles.join(","), until]
    });
    output::table(["TOKEN", "ROLES", "EXPIRES"], rows)
}
