#pragma once

#include <string>

#include <torchcomms/base/error.hpp>
#include <torchcomms/batch.hpp>
#include <torchcomms/comm.hpp>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "bindings/initialized.hpp"

// The texts of Python's `repr()`: one line with the kind of the object and its state.
namespace torch::comms::bindings {

std::string repr(const TorchComm& comm);
std::string repr(const TorchWork& work);
std::string repr(const TorchCommWindow& window);
std::string repr(const ReduceOp& op);
std::string repr(const P2POp& entry);
std::string repr(const BatchSendRecv& batch);
std::string repr(const CommOptions& options);
std::string repr(const ReconfigureOptions& options);

// Returns: "timeout 3 s, hints {'a': 'b'}" without the values that are not set.
std::string text_of(std::chrono::milliseconds timeout, const Hints& hints);

// Returns: "<name text>", or "<name>" if there is no text.
std::string bracketed(const std::string& name, const std::string& text);

// Defines __repr__, which never raises. The result is `text(object)`. If `text` throws, for example
// because a Python backend raises, the result is "<Type>". If the object's C++ part has not been
// created, the result is "<Type not made yet>".
// Threads: `text` runs without the GIL.
template <class Class, class Text>
void def_repr(Class& bound, const Text& text) {
  using Object = typename Class::type;
  const auto name = py::str(bound.attr("__name__")).template cast<std::string>();
  bound.def(
      "__repr__",
      [name, text](const MaybeInitializedSelf<Object>& self) {
        if (self.object == nullptr) return bracketed(name, "not made yet");
        try {
          return text(*self.object);
        } catch (const std::exception&) {
          return bracketed(name, "");
        }
      },
      ReleaseGil());
}

// Defines __repr__ by the repr() above for the class.
template <class Class>
void def_repr(Class& bound) {
  def_repr(bound, [](const typename Class::type& self) { return repr(self); });
}

}  // namespace torch::comms::bindings
