//! The extension module behind `import fiche`. Python calls no function here that keeps the interpreter's
//! lock while it reads, packs or waits.

mod advise;
mod buffer;
mod bytes;
mod codec;
mod error;
mod events;
mod options;
mod own;
mod pack;
mod reader;
mod record;
mod records;
mod source;
mod stream;
mod writer;

use pyo3::prelude::*;

#[pymodule]
fn _fiche(module: &Bound<'_, PyModule>) -> PyResult<()> {
    #[cfg(feature = "remote")]
    fiche_remote::on_wait(|| {
        // While the interpreter ends there is nobody to be asked.
        let asked = Python::try_attach(|py| py.check_signals());
        asked.unwrap_or(Ok(())).map_err(error::from_python)
    });
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<record::Record>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<records::Records>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<events::EventReader>()?;
    module.add_class::<events::EventItems>()?;
    module.add_class::<events::EventWriter>()?;
    module.add_function(wrap_pyfunction!(events::event_type, module)?)?;
    module.add_function(wrap_pyfunction!(stream::open, module)?)?;
    module.add_function(wrap_pyfunction!(reader::forked, module)?)?;
    module.add_function(wrap_pyfunction!(reader::reopen, module)?)?;
    module.add_function(wrap_pyfunction!(advise::advise, module)?)?;
    module.add_function(wrap_pyfunction!(codec::compress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decompress, module)?)?;
    module.add_function(wrap_pyfunction!(codec::size, module)?)?;
    module.add_function(wrap_pyfunction!(codec::levels, module)?)?;
    module.add_function(wrap_pyfunction!(pack::pack, module)?)?;
    module.add_function(wrap_pyfunction!(pack::dict_build, module)?)
}
