#include "routes.hpp"

#include <algorithm>

#include "asked_model.hpp"

namespace dragoman {
namespace {

constexpr std::size_t kShownCharacters = 60;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(at, start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The part of a session's name that says which engine holds it.
std::string key_of(const std::string& socket) {
  const std::string name = socket.substr(socket.rfind('/') + 1), suffix = ".sock";
  const bool has_suffix = name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  return has_suffix ? name.substr(0, name.size() - suffix.size()) : name;
}

std::uint64_t count_in(const std::string& part) {
  if (part.size() != sizeof(std::uint64_t)) throw BrokenStream("a count of another size");
  return number_at<std::uint64_t>(part.data());
}

}  // namespace

RoutingTable RoutingTable::from(const Frame& frame) {
  // [draining and the longest hold, restarts of engines, of Triton, then of each bundle its name and its sockets]
  constexpr std::size_t kFirstBundle = 3;
  if (frame.parts.size() < kFirstBundle || frame.parts[0].size() != 1 + sizeof(double)) throw BrokenStream("no routing table");
  RoutingTable table;
  table.draining = frame.parts[0][0] != 0;
  table.hold_s = number_at<double>(frame.parts[0].data() + 1);
  table.restarts = {{"engine", count_in(frame.parts[1])}, {"triton", count_in(frame.parts[2])}};
  for (std::size_t at = kFirstBundle; at + 1 < frame.parts.size(); at += 2) {
    table.bundles.push_back(frame.parts[at]);
    table.sockets[frame.parts[at]] = split(frame.parts[at + 1], '\0');
  }
  return table;
}

bool RoutingTable::is_complete() const {
  return std::none_of(sockets.begin(), sockets.end(), [](const auto& of_bundle) { return of_bundle.second.empty(); });
}

Engine::Engine(std::string bundle, const std::string& socket)
    : bundle(std::move(bundle)), socket(socket), key(key_of(socket)), channel(socket) {}

std::vector<EnginePointer> Routes::update(RoutingTable table) {
  std::vector<EnginePointer> fresh;
  for (const auto& [bundle, sockets] : table.sockets) {
    for (const auto& socket : sockets) {
      const auto is_it = [&socket](const EnginePointer& engine) { return engine->socket == socket; };
      if (std::any_of(all_.begin(), all_.end(), is_it)) continue;
      try {
        fresh.push_back(std::make_shared<Engine>(bundle, socket));
      } catch (const ChannelClosed&) {
        continue;  // it died just now; the supervisor's next table has its successor
      }
    }
  }
  all_.insert(all_.end(), fresh.begin(), fresh.end());
  table_ = std::move(table);
  return fresh;
}

void Routes::forget(const EnginePointer& engine) {
  all_.erase(std::remove(all_.begin(), all_.end(), engine), all_.end());
}

EnginePointer Routes::engine(const std::string& bundle) const {
  const auto found = table_.sockets.find(bundle);
  EnginePointer best;
  for (const auto& engine : all_) {
    if (found == table_.sockets.end() || !contains(found->second, engine->socket)) continue;
    if (!best || engine->open < best->open) best = engine;
  }
  return best;
}

EnginePointer Routes::engine_of_session(const std::string& session) const {
  const std::string key = session.substr(0, session.find('.'));
  for (const auto& engine : all_) {
    if (engine->key == key) return engine;
  }
  return nullptr;
}

bool Routes::bundle_for(const std::string& options, std::string& bundle, Failure& failure) const {
  const auto& bundles = table_.bundles;
  if (bundles.size() == 1) {  // its engine judges the options itself
    bundle = bundles[0];
    return true;
  }
  const AskedModel asked = asked_model(options);
  if (!asked.readable || contains(bundles, asked.name)) {
    bundle = asked.readable ? asked.name : bundles[0];
    return true;
  }
  failure = Failure::say(
      "INVALID_REQUEST",
      asked.named ? "there is no model '" + asked.name.substr(0, kShownCharacters) + "' here; this server has " + joined(bundles)
                  : "this server has several models; set the option `model` to one of " + joined(bundles));
  return false;
}

}  // namespace dragoman
