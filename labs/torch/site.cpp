// Finds the line of the Python program that made a call, which the errors of all ranks name.
#include <algorithm>
#include <array>
#include <cstdint>
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

// A search for the line in the code's table takes longer than everything else here. The sites of
// recent instructions are therefore kept. Requires the GIL.
comm::Site site_of(const pybind11::object& code, PyFrameObject* frame, const char* file) {
#if PY_VERSION_HEX >= 0x030b0000
  struct Known {
    pybind11::object code;  // owned, so that no other code gets its address
    int instruction = -1;
    comm::Site site;
  };
  static auto* const recent = new std::array<Known, 64>;  // outlives the interpreter
  const int instruction = PyFrame_GetLasti(frame);
  const std::size_t hash = reinterpret_cast<std::uintptr_t>(code.ptr()) / alignof(PyObject) +
                           static_cast<std::size_t>(instruction);
  Known& known = (*recent)[hash % recent->size()];
  if (!known.code.is(code) || known.instruction != instruction)
    known = {code, instruction, {kept(file), PyFrame_GetLineNumber(frame)}};
  return known.site;
#else
  return {kept(file), PyFrame_GetLineNumber(frame)};
#endif
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
    if (!is_library(file)) return site_of(code, frame_of(frame), file);
  }
  return {};
}

}  // namespace ringsmith::pytorch
