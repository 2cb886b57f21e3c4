// Finds the line of the Python program that made a call, which the errors of all ranks name.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <torch/csrc/python_headers.h>
#include <vector>
// Must follow Python's own header.
#include <pybind11/pybind11.h>

#include "labs/torch/backend.hpp"

namespace ringsmith::pytorch {

namespace {

std::vector<std::string>& libraries() {
  static std::vector<std::string> folders;
  return folders;
}

bool is_library(std::string_view file) {
  const auto& folders = libraries();
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return file.starts_with(folder); });
}

// Interned, because a Site stores only a pointer.
const char* kept(const std::string& file) {
  static auto* const files = new std::set<std::string>;  // outlives every group
  return files->insert(file).first->c_str();
}

// True while the interpreter shuts down: then this thread could not get the GIL.
bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

void set_library_folders(std::vector<std::string> folders) { libraries() = std::move(folders); }

comm::Site python_site() {
  if (Py_IsInitialized() == 0 || is_finalizing()) return {};
  const pybind11::gil_scoped_acquire gil;
  const auto take = [](auto* reference) {
    return pybind11::reinterpret_steal<pybind11::object>(reinterpret_cast<PyObject*>(reference));
  };
  const auto frame_of = [](const pybind11::object& o) {
    return reinterpret_cast<PyFrameObject*>(o.ptr());
  };
  for (auto frame = take(PyThreadState_GetFrame(PyThreadState_Get())); frame;
       frame = take(PyFrame_GetBack(frame_of(frame)))) {
    const auto code = take(PyFrame_GetCode(frame_of(frame)));
    PyObject* const text = reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename;
    const char* const file = PyUnicode_AsUTF8(text);
    if (file == nullptr) {
      PyErr_Clear();
      return {};
    }
    if (!is_library(file)) return {kept(file), PyFrame_GetLineNumber(frame_of(frame))};
  }
  return {};
}

}  // namespace ringsmith::pytorch
