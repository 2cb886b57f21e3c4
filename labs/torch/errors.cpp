#include "labs/torch/errors.hpp"

#include <array>
#include <pybind11/pybind11.h>

namespace ringsmith::pytorch {

namespace {

// Never released, because an error may be thrown while the interpreter shuts down.
struct Classes {
  PyObject* error = PyExc_RuntimeError;
  PyObject* usage = PyExc_ValueError;
  PyObject* mismatch = PyExc_RuntimeError;
  PyObject* lost = PyExc_RuntimeError;
  PyObject* timeout = PyExc_RuntimeError;
  PyObject* aborted = PyExc_RuntimeError;
};

Classes& classes() {
  static Classes known;
  return known;
}

PyObject* class_of(const Error& error) {
  const Classes& known = classes();
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return known.usage;
  if (dynamic_cast<const MismatchError*>(&error) != nullptr) return known.mismatch;
  if (dynamic_cast<const PeerLost*>(&error) != nullptr) return known.lost;
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return known.timeout;
  if (dynamic_cast<const Aborted*>(&error) != nullptr) return known.aborted;
  return known.error;
}

}  // namespace

void set_error_classes(const pybind11::dict& given) {
  const auto take = [&](const char* name, PyObject*& place) {
    place = pybind11::object(given[name]).release().ptr();
  };
  Classes& known = classes();
  take("Error", known.error);
  take("UsageError", known.usage);
  take("MismatchError", known.mismatch);
  take("PeerLost", known.lost);
  take("TimeoutError", known.timeout);
  take("Aborted", known.aborted);
}

PythonError::PythonError(const Error& error, const std::string& context)
    : PyTorchError("ringsmith: " + (context.empty() ? "" : context + ": ") + error.what()),
      type_(class_of(error)) {}

Where seen_by(int rank, int peer) {
  Where where;
  where.rank = rank;
  where.peer = peer;
  return where;
}

std::exception_ptr current_as_python_error(const std::string& context) {
  try {
    throw;
  } catch (const Error& error) {
    return std::make_exception_ptr(PythonError(error, context));
  } catch (...) {
    return std::current_exception();
  }
}

void register_translator() {
  pybind11::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (PythonError& error) {
      PyErr_SetString(error.python_type(), error.what());
    }
  });
}

}  // namespace ringsmith::pytorch
