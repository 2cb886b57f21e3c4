// The runtime's errors as Python exceptions, on both paths out of PyTorch:
//
//     work.wait()       pybind11 calls the translators that modules have registered
//     loss.backward()   PyTorch's autograd engine turns a torch::PyTorchError into the Python type
//                       that it names, and any other exception into a RuntimeError
//
// Every ringsmith::Error is rethrown as a PythonError, so that `except ringsmith_torch.PeerLost`
// works on both paths.
#pragma once

#include <exception>
#include <string>
#include <torch/csrc/Exceptions.h>

#include "runtime/base/error.hpp"

namespace ringsmith::pytorch {

// Sets the Python classes (package/errors.py), keyed by the C++ classes' names. Requires the GIL.
void set_error_classes(const pybind11::dict& classes);

class PythonError : public torch::PyTorchError {
 public:
  // context: prefix of the message, such as the operation that failed.
  explicit PythonError(const Error& error, const std::string& context = "");
  PyObject* python_type() override { return type_; }

 private:
  PyObject* type_;  // borrowed; the classes are never released
};

// The Where of an error that a rank detected, alone or with a peer.
[[nodiscard]] Where seen_by(int rank, int peer = -1);

// Returns the exception that is being handled, in the form that PyTorch should see: a
// ringsmith::Error as a PythonError, any other exception unchanged.
[[nodiscard]] std::exception_ptr current_as_python_error(const std::string& context = "");

template <class F>
decltype(auto) with_python_errors(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw PythonError(error);
  }
}

// Makes pybind11 convert a thrown PythonError. Call once, at import.
void register_translator();

}  // namespace ringsmith::pytorch
