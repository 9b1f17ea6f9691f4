// Which model a request's options ask for. Everything else about them is for the engine to judge.
#pragma once

#include <string>

namespace dragoman {

struct AskedModel {
  bool readable = true;  // false: this is no JSON; any engine says what is wrong with it
  bool named = false;
  std::string name;  // of anything but a string, as it was written
};

AskedModel asked_model(const std::string& options);

}  // namespace dragoman
