#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include <pybind11/stl.h>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "sim/bootstrap.hpp"
#include "sim/collective.hpp"

namespace torch::comms::bindings {
namespace {

// The settings that a caller may pass by name. The names are those of the C++ fields.
using FieldSetters = std::map<std::string, std::function<void(const py::handle&)>>;

template <class T>
std::function<void(const py::handle&)> into(T& field) {
  return [&field](const py::handle& value) { field = value.cast<T>(); };
}

void set(const py::dict& given, const FieldSetters& fields) {
  for (const auto& [key, value] : given) {
    const auto found = fields.find(key.cast<std::string>());
    if (found == fields.end())
      throw std::invalid_argument("unknown setting " + key.cast<std::string>());
    found->second(value);
  }
}

void add_network(sim::Network& network, FieldSetters& fields) {
  for (auto& [prefix, wire] :
       {std::pair<std::string, sim::LogGPParameters*>{"", &network.between},
        std::pair<std::string, sim::LogGPParameters*>{"local_", &network.inside}}) {
    fields[prefix + "latency_us"] = into(wire->latency_us);
    fields[prefix + "overhead_us"] = into(wire->overhead_us);
    fields[prefix + "gap_us"] = into(wire->gap_us);
    fields[prefix + "byte_ns"] = into(wire->byte_ns);
  }
  fields["local_size"] = into(network.local_size);
  fields["rails"] = into(network.rails);
  fields["hosts_per_leaf"] = into(network.hosts_per_leaf);
  fields["oversubscription"] = into(network.oversubscription);
  fields["spine_us"] = into(network.spine_us);
  fields["compute_ns"] = into(network.compute_ns);
}

void add_faults(sim::NetworkFaults& faults, FieldSetters& fields) {
  fields["seed"] = into(faults.seed);
  fields["drop"] = into(faults.drop);
  fields["retry_us"] = into(faults.retry_us);
  fields["delay"] = into(faults.delay);
  fields["delay_us"] = into(faults.delay_us);
}

// Checks for Ctrl-C, so that it ends a long run.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

py::dict to_dict(const sim::RankStatistics& spread) {
  py::dict row;
  row["max"] = spread.max;
  row["mean"] = spread.mean;
  return row;
}

py::dict simulate_collective(const std::string& operation, const std::string& algorithm,
                             const py::dict& settings) {
  sim::CollectiveRun run;
  for (const auto* each : schedule::algorithms())
    if (operation_name(each->operation) == operation && each->name == algorithm)
      run.algorithm = each;
  if (run.algorithm == nullptr)
    throw std::invalid_argument("no algorithm " + algorithm + " of " + operation);
  FieldSetters fields;
  add_network(run.network, fields);
  add_faults(run.faults, fields);
  fields["ranks"] = into(run.ranks);
  fields["bytes"] = into(run.bytes);
  fields["element_bytes"] = into(run.element_bytes);
  fields["root"] = into(run.root);
  fields["chunk"] = into(run.options.chunk);
  fields["rings"] = into(run.options.rings);
  set(settings, fields);
  sim::CollectiveResult result;
  {
    const ScopedGilRelease released;
    result = sim::simulate(run, check_signals);
  }
  py::dict row;
  row["time_us"] = result.time_us;
  row["first_us"] = result.first_us;
  row["steps"] = result.steps;
  row["messages"] = to_dict(result.messages);
  row["bytes_sent"] = to_dict(result.bytes_sent);
  row["cost_messages"] = result.cost.messages;
  row["cost_bytes"] = result.cost.sent * run.element_bytes;
  row["enumerated"] = result.enumerated;
  row["sampled"] = result.sampled;
  row["events"] = result.events;
  row["late"] = result.drops;
  row["bytes_per_rank"] = result.bytes_per_rank;
  return row;
}

py::dict simulate_bootstrap(const py::dict& settings) {
  sim::BootstrapRun run;
  double limit_us = sim::to_us(1000 * run.retry_policy.timeout.count());
  FieldSetters fields;
  add_network(run.network, fields);
  add_faults(run.faults, fields);
  fields["ranks"] = into(run.ranks);
  fields["blob_bytes"] = into(run.blob_bytes);
  fields["connect_us"] = into(run.store.connect_us);
  fields["request_us"] = into(run.store.request_us);
  fields["stagger_us"] = into(run.stagger_us);
  fields["kill"] = into(run.kill);
  fields["kill_at_us"] = into(run.kill_at_us);
  fields["limit_us"] = into(limit_us);
  set(settings, fields);
  run.retry_policy.timeout = std::chrono::microseconds(static_cast<int64_t>(limit_us));
  sim::BootstrapResult result;
  {
    const ScopedGilRelease released;
    result = sim::simulate(run, check_signals);
  }
  py::dict row;
  row["time_us"] = result.time_us;
  row["store_us"] = result.store_us;
  row["rounds"] = result.rounds;
  row["messages"] = to_dict(result.messages);
  row["bytes_sent"] = to_dict(result.bytes_sent);
  row["store_requests"] = to_dict(result.store_requests);
  row["store_total"] = result.store_total;
  row["done"] = result.done;
  row["failed"] = result.failed;
  row["killed"] = result.killed;
  row["naming"] = result.naming;
  row["noticed_us"] = result.noticed_us;
  row["retries"] = result.retries;
  row["events"] = result.events;
  row["bytes_per_rank"] = result.bytes_per_rank;
  row["table_bytes"] = result.table_bytes;
  return row;
}

}  // namespace

void bind_sim(py::module_& module) {
  module.def("_simulate_collective", &simulate_collective, py::arg("operation"),
             py::arg("algorithm"), py::arg("settings"),
             "dict: one algorithm at one size on the modelled network. `settings` as the fields of "
             "CollectiveRun, Network and Faults in src/sim. Raises ValueError.");
  module.def("_simulate_bootstrap", &simulate_bootstrap, py::arg("settings"),
             "dict: the exchange of addresses at one size on the modelled network. `settings` as "
             "the fields of BootstrapRun, Network and Faults in src/sim. Raises ValueError.");
}

}  // namespace torch::comms::bindings
