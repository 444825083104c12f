// SPDX-License-Identifier: BSD-3-Clause

// libdcp from Go, by cgo: saves a checkpoint, lists it, reads a slice of a tensor, and saves that. Run it as:
// bindings_go DIRECTORY
//
// Memory of tensors is the library's: cgo passes no struct that points to memory of Go.
package main

// #include <stdlib.h>
// #include <dcp.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"
)

func check(status C.dcp_status) error {
	if status == C.DCP_OK {
		return nil
	}
	return errors.New(C.GoString(C.dcp_error_message()))
}

// Calls with a text of C.
func with(text string, call func(*C.char) C.dcp_status) error {
	c := C.CString(text)
	defer C.free(unsafe.Pointer(c))
	return check(call(c))
}

// Floats that C may keep a pointer to.
func floats(count int64) ([]float32, error) {
	var memory unsafe.Pointer
	if err := check(C.dcp_memory_allocate(C.size_t(4*count), &memory)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(memory), count), nil
}

func release(values []float32) {
	C.dcp_memory_free(unsafe.Pointer(&values[0]))
}

func tensor(rows, columns int64, data []float32) C.dcp_tensor {
	t := C.dcp_tensor{dtype: C.DCP_F32, ndim: 2, data: unsafe.Pointer(&data[0])}
	t.global_shape[0], t.global_shape[1] = C.int64_t(rows), C.int64_t(columns)
	return t
}

// Failures of building stay in the tree, and are what saving it returns.
func addTensor(state *C.dcp_state, key string, t C.dcp_tensor) {
	c := C.CString(key)
	defer C.free(unsafe.Pointer(c))
	C.dcp_state_tensor(state, c, &t)
}

func save(state *C.dcp_state, path string) error {
	options := C.dcp_save_options{overwrite: C.DCP_OVERWRITE_REPLACE}
	return with(path, func(c *C.char) C.dcp_status { return C.dcp_save(state, c, &options) })
}

func list(checkpoint *C.dcp_checkpoint) error {
	for i := C.size_t(0); i < C.dcp_checkpoint_count(checkpoint); i++ {
		var entry C.dcp_entry
		if err := check(C.dcp_checkpoint_entry(checkpoint, i, &entry)); err != nil {
			return err
		}
		if !entry.is_tensor {
			fmt.Printf("%s: object\n", C.GoString(entry.name))
			continue
		}
		shape := unsafe.Slice((*int64)(unsafe.Pointer(entry.global_shape)), int(entry.ndim))
		fmt.Printf("%s: %s %s\n", C.GoString(entry.name), C.GoString(C.dcp_dtype_name(entry.dtype)),
			strings.ReplaceAll(fmt.Sprint(shape), " ", ", "))
	}
	return nil
}

func readRows(checkpoint *C.dcp_checkpoint, name string, first, count int64) ([]float32, error) {
	var index C.size_t
	var entry C.dcp_entry
	err := with(name, func(c *C.char) C.dcp_status { return C.dcp_checkpoint_find(checkpoint, c, &index) })
	if err == nil {
		err = check(C.dcp_checkpoint_entry(checkpoint, index, &entry))
	}
	if err != nil {
		return nil, err
	}
	if !entry.is_tensor || entry.ndim != 2 {
		return nil, errors.New(name + " is no matrix")
	}
	shape := unsafe.Slice((*int64)(unsafe.Pointer(entry.global_shape)), 2)
	rows, err := floats(count * shape[1])
	if err != nil {
		return nil, err
	}
	box := tensor(shape[0], shape[1], rows)
	box.sharded = true
	box.offsets[0] = C.int64_t(first)
	box.sizes[0], box.sizes[1] = C.int64_t(count), C.int64_t(shape[1])
	if err := check(C.dcp_checkpoint_read_tensor(checkpoint, index, &box, &C.dcp_read_options{})); err != nil {
		release(rows)
		return nil, err
	}
	return rows, nil
}

func saveWhole(path string) error {
	weight, err := floats(24)
	if err != nil {
		return err
	}
	defer release(weight)
	for i := range weight {
		weight[i] = float32(i)
	}
	state := C.dcp_state_new()
	defer C.dcp_state_free(state)
	addTensor(state, "weight", tensor(6, 4, weight))
	train, step := C.CString("train"), C.CString("step")
	defer C.free(unsafe.Pointer(train))
	defer C.free(unsafe.Pointer(step))
	C.dcp_state_int(C.dcp_state_dict(state, train), step, 1000)
	return save(state, path)
}

func run(directory string) error {
	if err := saveWhole(directory + "/whole"); err != nil {
		return err
	}
	var checkpoint *C.dcp_checkpoint
	if err := with(directory+"/whole", func(c *C.char) C.dcp_status {
		return C.dcp_checkpoint_open(c, &C.dcp_open_options{}, &checkpoint)
	}); err != nil {
		return err
	}
	defer C.dcp_checkpoint_close(checkpoint)
	if err := list(checkpoint); err != nil {
		return err
	}
	rows, err := readRows(checkpoint, "weight", 2, 2)
	if err != nil {
		return err
	}
	defer release(rows)
	texts := make([]string, len(rows))
	for i, value := range rows {
		texts[i] = fmt.Sprintf("%.1f", value)
	}
	fmt.Printf("rows 2 to 3: [%s]\n", strings.Join(texts, ", "))
	if _, err := readRows(checkpoint, "nothing", 0, 1); err != nil {
		fmt.Printf("refused: %s\n", err)
	}

	slice := C.dcp_state_new()
	defer C.dcp_state_free(slice)
	addTensor(slice, "rows", tensor(2, 4, rows))
	return save(slice, directory+"/rows")
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bindings_go DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
