// What the files of the Python module share.
#pragma once

#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include <cstdint>

namespace asynct {

inline const void* Input(uintptr_t address) { return reinterpret_cast<const void*>(address); }
inline void* Output(uintptr_t address) { return reinterpret_cast<void*>(address); }
inline cudaStream_t Stream(uintptr_t handle) { return reinterpret_cast<cudaStream_t>(handle); }

// Add the structs and launches of a family; the structs of bindings.cc are there already.
void BindAttention(pybind11::module_& module);
void BindGemm(pybind11::module_& module);

}  // namespace asynct
