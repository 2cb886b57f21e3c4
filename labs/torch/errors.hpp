// Errors of the runtime as Python exceptions, on both ways out of PyTorch:
//
//     work.wait()       pybind11 asks the translators that modules have registered
//     loss.backward()   PyTorch's autograd engine makes a RuntimeError of what it does not know,
//                       and of a torch::PyTorchError the Python type that this one names
//
// So that `except ringsmith_torch.PeerLost` works on either, every ringsmith::Error leaves as a
// PythonError.
#pragma once

#include <exception>
#include <string>
#include <torch/csrc/Exceptions.h>

#include "runtime/base/error.hpp"

namespace ringsmith::pytorch {

// The Python classes (package/errors.py), by the names of the C++ ones. With the GIL held.
void set_error_classes(const pybind11::dict& classes);

class PythonError : public torch::PyTorchError {
 public:
  // context: what it happened in, before its own words.
  explicit PythonError(const Error& error, const std::string& context = "");
  PyObject* python_type() override { return type_; }

 private:
  PyObject* type_;  // lives as long as the module
};

// Of an error that a rank found, alone or in what it had to do with a peer.
[[nodiscard]] Where seen_by(int rank, int peer = -1);

// The exception that is being handled, as it may leave to PyTorch: a ringsmith::Error as a
// PythonError, anything else as it is.
[[nodiscard]] std::exception_ptr current_as_python_error(const std::string& context = "");

// What f() returns; its errors as Python exceptions.
template <class F>
decltype(auto) with_python_errors(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw PythonError(error);
  }
}

// For pybind11: throws of PythonError become the exceptions that they name. Once, at import.
void register_translator();

}  // namespace ringsmith::pytorch
