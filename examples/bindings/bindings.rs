// SPDX-License-Identifier: BSD-3-Clause
//! libdcp from Rust, over what bindgen makes of dcp.h: saves a checkpoint, lists it, reads a slice of a tensor, and
//! saves that. Run it as: bindings_rust DIRECTORY
//!
//! Functions that C declares inline, such as dcp_save(), are one line each over a function with the ending _sized,
//! which takes the size of the caller's struct: that one is called here.
use std::ffi::{c_void, CStr, CString};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals, clippy::all)]
#[rustfmt::skip]
mod dcp {
    include!("dcp.rs");
}

type Outcome<T> = Result<T, String>;

fn check(status: dcp::dcp_status) -> Outcome<()> {
    if status == dcp::dcp_status_DCP_OK {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(dcp::dcp_error_message()) }.to_string_lossy().into_owned())
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("text without NUL")
}

/// A whole tensor of floats, or rows of one.
fn tensor(shape: [i64; 2], rows: Option<(i64, i64)>, data: &mut [f32]) -> dcp::dcp_tensor {
    let mut tensor: dcp::dcp_tensor = unsafe { zeroed() };
    tensor.dtype = dcp::dcp_dtype_DCP_F32;
    tensor.ndim = 2;
    tensor.global_shape[..2].copy_from_slice(&shape);
    if let Some((first, count)) = rows {
        tensor.sharded = true;
        tensor.offsets[0] = first;
        tensor.sizes[..2].copy_from_slice(&[count, shape[1]]);
    }
    tensor.data = data.as_mut_ptr() as *mut c_void;
    tensor
}

struct State(*mut dcp::dcp_state);

impl State {
    fn new() -> State {
        State(unsafe { dcp::dcp_state_new() })
    }
    /// Failures of building stay in the tree, and are what saving it returns.
    fn add_tensor(&self, key: &str, tensor: &dcp::dcp_tensor) {
        unsafe {
            dcp::dcp_state_tensor_sized(self.0, c_text(key).as_ptr(), tensor, size_of::<dcp::dcp_tensor>() as u64);
        }
    }
    fn save(&self, path: &str) -> Outcome<()> {
        let mut options: dcp::dcp_save_options = unsafe { zeroed() };
        options.overwrite = dcp::dcp_overwrite_DCP_OVERWRITE_REPLACE;
        let size = size_of::<dcp::dcp_save_options>() as u64;
        check(unsafe { dcp::dcp_save_sized(self.0, c_text(path).as_ptr(), &options, size) })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        unsafe { dcp::dcp_state_free(self.0) }
    }
}

struct Checkpoint(*mut dcp::dcp_checkpoint);

impl Checkpoint {
    fn open(path: &str) -> Outcome<Checkpoint> {
        let mut opened = null_mut();
        check(unsafe { dcp::dcp_checkpoint_open_sized(c_text(path).as_ptr(), null(), 0, &mut opened) })?;
        Ok(Checkpoint(opened))
    }
    fn entry(&self, index: u64) -> Outcome<dcp::dcp_entry> {
        let mut entry: dcp::dcp_entry = unsafe { zeroed() };
        let size = size_of::<dcp::dcp_entry>() as u64;
        check(unsafe { dcp::dcp_checkpoint_entry_sized(self.0, index, &mut entry, size) })?;
        Ok(entry)
    }
    fn find(&self, name: &str) -> Outcome<u64> {
        let mut index = 0;
        check(unsafe { dcp::dcp_checkpoint_find(self.0, c_text(name).as_ptr(), &mut index) })?;
        Ok(index)
    }
    fn list(&self) -> Outcome<()> {
        for index in 0..unsafe { dcp::dcp_checkpoint_count(self.0) } {
            let entry = self.entry(index)?;
            let name = unsafe { CStr::from_ptr(entry.name) }.to_string_lossy();
            if entry.is_tensor {
                let dtype = unsafe { CStr::from_ptr(dcp::dcp_dtype_name(entry.dtype)) }.to_string_lossy();
                let shape = unsafe { std::slice::from_raw_parts(entry.global_shape, entry.ndim as usize) };
                println!("{name}: {dtype} {shape:?}");
            } else {
                println!("{name}: object");
            }
        }
        Ok(())
    }
    fn read_rows(&self, name: &str, first: i64, count: i64) -> Outcome<Vec<f32>> {
        let index = self.find(name)?;
        let entry = self.entry(index)?;
        if !entry.is_tensor || entry.ndim != 2 {
            return Err(format!("{name} is no matrix"));
        }
        let shape = unsafe { [*entry.global_shape, *entry.global_shape.add(1)] };
        let mut rows = vec![0f32; (count * shape[1]) as usize];
        let box_ = tensor(shape, Some((first, count)), &mut rows);
        let size = size_of::<dcp::dcp_tensor>() as u64;
        check(unsafe { dcp::dcp_checkpoint_read_tensor_sized(self.0, index, &box_, size, null(), 0) })?;
        Ok(rows)
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        unsafe { dcp::dcp_checkpoint_close(self.0) }
    }
}

fn run(directory: &str) -> Outcome<()> {
    let mut weight: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let state = State::new();
    state.add_tensor("weight", &tensor([6, 4], None, &mut weight));
    unsafe {
        let train = dcp::dcp_state_dict(state.0, c_text("train").as_ptr());
        dcp::dcp_state_int(train, c_text("step").as_ptr(), 1000);
    }
    state.save(&format!("{directory}/whole"))?;

    let checkpoint = Checkpoint::open(&format!("{directory}/whole"))?;
    checkpoint.list()?;
    let mut rows = checkpoint.read_rows("weight", 2, 2)?;
    println!("rows 2 to 3: {rows:?}");
    if let Err(message) = checkpoint.find("nothing") {
        println!("refused: {message}");
    }

    let slice = State::new();
    slice.add_tensor("rows", &tensor([2, 4], None, &mut rows));
    slice.save(&format!("{directory}/rows"))
}

fn main() {
    let directory = std::env::args().nth(1).expect("usage: bindings_rust DIRECTORY");
    if let Err(message) = run(&directory) {
        eprintln!("{message}");
        std::process::exit(1);
    }
}
