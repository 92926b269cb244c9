#pragma once

#include <string>

#include <torchcomms/base/error.hpp>
#include <torchcomms/batch.hpp>
#include <torchcomms/comm.hpp>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "bindings/initialized.hpp"

// What `repr()` gives: one line, which says what an object is and how it stands.
namespace torch::comms::bindings {

std::string repr(const TorchComm& comm);
std::string repr(const TorchWork& work);
std::string repr(const TorchCommWindow& window);
std::string repr(const ReduceOp& op);
std::string repr(const P2POp& entry);
std::string repr(const BatchSendRecv& batch);
std::string repr(const CommOptions& options);
std::string repr(const ReconfigureOptions& options);

// "timeout 3 s, hints {'a': 'b'}"; what is unset is left out.
std::string text_of(std::chrono::milliseconds timeout, const Hints& hints);

// "<name text>", or "<name>" where there is none.
std::string bracketed(const std::string& name, const std::string& text);

// The method __repr__, which raises nothing: where `text` of an object cannot be had, as of a
// backend in Python that fails, its type's name remains; so of one that is not made yet.
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

template <class Class>
void def_repr(Class& bound) {
  def_repr(bound, [](const typename Class::type& self) { return repr(self); });
}

}  // namespace torch::comms::bindings
