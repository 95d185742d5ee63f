//! The section `[peak]`: what GPUs can do at most, for models of which no data sheet is built in, or of which it is wrong.

use toml::de::DeValue;
use warpmeter_core::peak::{Peaks, Stated};

use super::reader::Section;
use super::values;

/// Bytes in a millionth of a gigabyte, which is 10⁹ bytes.
const BYTES: u64 = 1000;
/// Operations in a millionth of a tera-operation.
const OPERATIONS: u64 = 1_000_000;

const MODEL: &str = "a word of a GPU's product name such as H100, with a table { dram_gigabytes_per_second, tensor_teraflops }";

pub(super) fn read(section: &mut Section<'_>, peaks: &mut Peaks) -> bool {
    section.read(&[MODEL], |section, model| {
        if !values::is_model(model) {
            return false;
        }
        if !section.is_table(model) {
            section.refuse(
                model,
                "wants a table such as { dram_gigabytes_per_second = 3350, tensor_teraflops = 989 }",
            );
            return true;
        }
        section.within(model, |table| {
            let mut stated = Stated::default();
            table.read(&["dram_gigabytes_per_second", "tensor_teraflops"], |table, key| match key {
                "dram_gigabytes_per_second" => {
                    table.set_some(key, &mut stated.dram, |value| rate(value, BYTES))
                }
                "tensor_teraflops" => {
                    table.set_some(key, &mut stated.tensor, |value| rate(value, OPERATIONS))
                }
                _ => false,
            });
            peaks.push((model.to_owned(), stated));
        })
    })
}

/// A rate in units of a millionth of what is written.
fn rate(value: &DeValue<'_>, unit: u64) -> Result<u64, String> {
    values::rate(value).map(|millionths| millionths * unit)
}
