// The Python module ringsmith_torch._C, on which package/__init__.py builds the "ringsmith"
// backend.
#include <torch/csrc/utils/pybind.h>
// Must follow PyTorch's own header.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>

#include "labs/apps/schedule/own_schedule.hpp"
#include "labs/torch/backend.hpp"
#include "labs/torch/errors.hpp"
#include "labs/torch/memory.hpp"
#include "runtime/job/bootstrap.hpp"

namespace py = pybind11;

namespace ringsmith::pytorch {

namespace {

using Handle = c10::intrusive_ptr<PluginBase>;

c10::intrusive_ptr<Backend> ours(const Handle& group) {
  if (auto* const backend = dynamic_cast<Backend*>(group.get()))
    return c10::intrusive_ptr<Backend>::reclaim_copy(backend);
  throw PythonError(UsageError("this group's backend is not ringsmith"));
}

Handle make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
            std::chrono::milliseconds timeout, const std::string& scope, const py::dict& choices) {
  return with_python_errors([&]() -> Handle {
    comm::GroupOptions options;
    options.timeout = timeout;
    options.algorithm = comm::parse_algorithm(choices["algorithm"].cast<std::string>());
    options.transport = comm::parse_transport(choices["transport"].cast<std::string>());
    options.interface = choices["interface"].cast<std::string>();
    options.sockets = choices["sockets"].cast<int>();
    options.checksum = choices["checksum"].cast<bool>();
    options.ranks_per_node = choices["ranks_per_node"].cast<int>();
    options.flight_folder = choices["flight_dir"].cast<std::string>();
    const auto schedule = choices["schedule"].cast<std::string>();
    if (!schedule.empty()) {
      require(options.algorithm == comm::Algorithm::automatic ||
                  options.algorithm == comm::Algorithm::ring,
              "a schedule takes the place of the ring: leave out the algorithm");
      options.algorithm = comm::Algorithm::ring;
      apps::use_schedule_of(schedule, size);  // throws unless it is proved
    }
    const py::gil_scoped_release released;  // other threads may run while ranks meet
    return c10::make_intrusive<Backend>(store, rank, size, options, scope);
  });
}

at::ScalarType type_of(const py::object& dtype) {
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("dtype must be a torch.dtype");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  register_translator();
  module.def("set_error_classes", &set_error_classes);
  module.def("set_library_folders", &set_library_folders);
  module.def("make", &make);
  module.def("exchange_in_launcher",
             [](const std::string& record, std::chrono::milliseconds timeout) {
               const py::gil_scoped_release released;
               return with_python_errors([&] {
                 return comm::make_bootstrap(comm::BootstrapKind::env, timeout)->all_gather(record);
               });
             });
  module.def("ranks_on_machine",
             [](const Handle& group) { return ours(group)->ranks_on_machine(); });
  module.def("set_overlap",
             [](const Handle& group, bool overlap) { ours(group)->set_overlap(overlap); });
  module.def("facts", [](const Handle& group) { return ours(group)->facts(); });
  module.def("abort", [](const Handle& group) {
    const auto backend = ours(group);
    const comm::Site site = python_site();
    const py::gil_scoped_release released;
    with_python_errors([&] { backend->abort_group(site); });
  });
  module.def("set_timeout", [](const Handle& group, std::chrono::milliseconds timeout) {
    ours(group)->set_timeout(timeout);
  });
  module.def("zeros", [](const Handle& group, const std::vector<std::int64_t>& sizes,
                         const py::object& dtype) {
    return shared_zeros(ours(group), sizes, type_of(dtype));
  });
  module.def("open_scope", [](const Handle& group) { open_shared_scope(ours(group)); });
  module.def("close_scope", &close_shared_scope);
}

}  // namespace ringsmith::pytorch
