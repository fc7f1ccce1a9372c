//! `fiche.advise`

use fiche::Error;
use fiche::ReadAt;
use fiche::advise::{Advice, Survey};
use fiche::archive::{Method, Split};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{Result, from_python};
use crate::options::threads;
use crate::pack::{Input, folder};

/// A length of a dictionary as `fiche.pack` takes it: bytes, "auto" or "none".
#[derive(FromPyObject)]
pub enum DictionaryLen {
    Bytes(u64),
    Said(String),
}

impl DictionaryLen {
    fn len(self) -> fiche::Result<Option<u64>> {
        match self {
            DictionaryLen::Bytes(len) => Ok(Some(len)),
            DictionaryLen::Said(said) if said == "auto" => Ok(None),
            DictionaryLen::Said(said) if said == "none" => Ok(Some(0)),
            DictionaryLen::Said(said) => {
                let what =
                    format!("{said:?} is no length of a dictionary: bytes, 'auto' or 'none'");
                Err(Error::Invalid { what: what.into() })
            }
        }
    }
}

/// A method, and its level or the default one.
fn way((name, level): (String, Option<i32>)) -> fiche::Result<(Method, i32)> {
    let method: Method = name.parse()?;
    let level = level.unwrap_or(method.default_level());
    Ok((method.at_level(level)?, level))
}

#[pyfunction]
#[pyo3(signature = (
    input, *, methods = Vec::new(), blocks = Vec::new(), dicts = Vec::new(), read = 16 << 10,
    records = "files", exclude = Vec::new(), threads = None, progress = None,
))]
#[expect(clippy::too_many_arguments, reason = "they are options with names")]
pub fn advise<'py>(
    py: Python<'py>,
    input: &Bound<'py, PyAny>,
    methods: Vec<(String, Option<i32>)>,
    blocks: Vec<usize>,
    dicts: Vec<DictionaryLen>,
    read: usize,
    records: &str,
    exclude: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> Result<Bound<'py, PyDict>> {
    let threads = self::threads(threads)?;
    let split = match records {
        "files" => None,
        split => Some(split.parse::<Split>()?),
    };
    let input = Input::of(input)?;
    if !(1..=16 << 20).contains(&read) {
        return Err(Error::Invalid { what: "a piece has 1 byte to 16 MiB".into() }.into());
    }
    let methods = methods.into_iter().map(way).collect::<fiche::Result<Vec<_>>>()?;
    let dicts = dicts.into_iter().map(DictionaryLen::len).collect::<fiche::Result<Vec<_>>>()?;
    let survey = Survey::default().threads(threads).read_len(read);
    let advice = py.detach(|| {
        let tell = |done: u64, all: u64| {
            Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(call) => call.bind(py).call1((done, all)).map(drop),
                    None => Ok(()),
                }
            })
            .map_err(from_python)
        };
        let measure = |survey: Survey, content: &dyn ReadAt| {
            let plans = Survey::crossed(&methods, &blocks, &dicts, content.len())?;
            survey.plans(plans).run(content, &mut |done, all| tell(done, all))
        };
        match input {
            Input::Paths(paths) => {
                let mut folder = folder(&paths, &exclude, (true, split.clone()), [None; 2])?;
                let survey = survey.record_bytes(folder.record_bytes()?).split(split);
                measure(survey, &folder.content())
            }
            Input::Records(_, parts) => measure(survey, &parts),
        }
    })?;
    as_dict(py, &advice)
}

fn as_dict<'py>(py: Python<'py>, advice: &Advice) -> Result<Bound<'py, PyDict>> {
    let ways = PyList::empty(py);
    for figures in &advice.figures {
        let (plan, way, options) = (&figures.plan, PyDict::new(py), PyDict::new(py));
        options.set_item("method", plan.method.name())?;
        options.set_item("level", plan.level)?;
        options.set_item("block", plan.block_len)?;
        if let Method::Coding(_) = plan.method {
            options.set_item("dict", plan.dictionary_len)?;
        }
        way.set_item("options", options)?;
        way.set_item("stored_bytes", figures.stored_bytes)?;
        way.set_item("stored_error", figures.stored_error)?;
        way.set_item("reads_per_second", figures.reads_per_second)?;
        way.set_item("bytes_per_read", figures.read_bytes)?;
        way.set_item("pack_seconds", figures.pack_seconds)?;
        way.set_item("best_to_read", figures.reads_best)?;
        way.set_item("best_to_write", figures.packs_best)?;
        let marks = [
            ("small", advice.small()),
            ("fast to read", advice.fast_to_read()),
            ("fast to write", advice.fast_to_write()),
        ];
        let marks = marks.into_iter().filter(|(_, best)| *best == figures).map(|(mark, _)| mark);
        way.set_item("recommended", marks.collect::<Vec<_>>())?;
        ways.append(way)?;
    }
    let dict = PyDict::new(py);
    dict.set_item("content_bytes", advice.content_bytes)?;
    dict.set_item("threads", advice.threads)?;
    dict.set_item("read_bytes", advice.read_len)?;
    dict.set_item("ways", ways)?;
    Ok(dict)
}
