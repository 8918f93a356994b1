//! OpenAI's API as Azure serves it: the deployment stands in the path (or, under `/openai/v1`, in the body), and a chat may
//! be given the owner's data sources. All else is OpenAI's.

use super::super::exchange::{Asked, Denied};
use super::super::grants::Ways;
use super::super::scan::Path;
use super::super::usage::Tally;
use super::{Endpoint, Forms, is_said, model, openai};
use crate::policy::Grant;
use serde_json::{Map, Value};

/// Azure OpenAI.
pub(super) struct AzureOpenAi;

/// Known beside OpenAI's fields; looked at below.
const MORE: &[&str] = &["data_sources", "dataSources"];

impl Forms for AzureOpenAi {
    fn endpoint(&self, path: &str) -> Endpoint {
        openai::endpoint(path)
    }

    /// The deployment in the path is what answers; a model in the body beside it is not read there.
    fn asked(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>) -> Result<Asked, Denied> {
        let model = named.map_or_else(|| model(body), |named| Ok(named.to_owned()));
        let mut asked = openai::asked(endpoint, model, body)?;
        openai::ask_for_usage(endpoint, &mut asked, body)?;
        Ok(asked)
    }

    fn reach(&self, endpoint: Endpoint, _: Option<&str>, body: &mut Map<String, Value>, ways: &mut Ways<'_>) {
        for key in MORE {
            if is_said(body.get(*key)) {
                ways.need(Grant::Storage, &format!("{key:?}"));
                ways.need(Grant::WebFetch, &format!("{key:?}, whose addresses the request names,"));
            }
        }
        openai::reach(endpoint, body, MORE, ways);
    }

    fn error(&self, denied: &Denied) -> Value {
        openai::error(denied)
    }

    fn request_headers(&self) -> &'static [&'static str] {
        openai::HEADERS
    }

    fn watched(&self) -> &'static [Path] {
        openai::WATCHED
    }

    fn read(&self, endpoint: Endpoint, seen: &Value, tally: &mut Tally) {
        openai::read(endpoint, seen, tally);
    }

    fn is_last(&self, data: &[u8]) -> bool {
        data == b"[DONE]"
    }
}
