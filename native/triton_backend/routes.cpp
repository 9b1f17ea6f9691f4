#include "routes.hpp"

#include <algorithm>
#include <utility>

#include "text.hpp"

namespace dragoman {
namespace {

constexpr std::size_t kShownBytes = 60;  // of a name that a caller sent

// The parts of a ROUTES frame; of each bundle its name and its sockets follow.
constexpr std::size_t kStatePart = 0, kLimitsPart = 1, kRestartsPart = 2, kStatusPart = 3, kFirstBundlePart = 4;

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

// The start of the names of an engine's sessions.
std::string key_of(const std::string& socket) {
  const std::string name = socket.substr(socket.rfind('/') + 1), suffix = ".sock";
  const bool has_suffix =
      name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  return has_suffix ? name.substr(0, name.size() - suffix.size()) : name;
}

}  // namespace

RoutingTable RoutingTable::from(const Frame& frame) {
  const auto& parts = frame.parts;
  if (parts.size() < kFirstBundlePart || parts[kStatePart].size() != sizeof(char) + sizeof(double)) {
    throw BrokenStream("a frame that is no routing table");
  }
  RoutingTable table;
  table.draining = parts[kStatePart][0] != 0;
  table.hold_s = number_at<double>(parts[kStatePart].data() + sizeof(char));
  Limits& limits = table.limits;
  read_numbers(parts[kLimitsPart], {&limits.max_texts, &limits.max_text_bytes, &limits.max_request_bytes,
                                    &limits.max_options_bytes, &limits.max_command_bytes});
  read_numbers(parts[kRestartsPart], {&table.restarts["engine"], &table.restarts["triton"]});
  table.status = parts[kStatusPart];
  for (std::size_t at = kFirstBundlePart; at + 1 < parts.size(); at += 2) {
    table.bundles.push_back(parts[at]);
    table.sockets[parts[at]] = split(parts[at + 1], '\0');
  }
  return table;
}

bool RoutingTable::is_complete() const {
  return std::none_of(sockets.begin(), sockets.end(), [](const auto& of_bundle) { return of_bundle.second.empty(); });
}

Engine::Engine(std::string bundle, const std::string& socket)
    : bundle(std::move(bundle)), socket(socket), key(key_of(socket)), channel(socket) {}

void Engine::send(const Frame& frame) {
  try {
    channel.send(frame);
  } catch (const ChannelClosed&) {
    return;
  }
}

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

void Routes::forget(const EnginePointer& engine) { all_.erase(std::remove(all_.begin(), all_.end(), engine), all_.end()); }

EnginePointer Routes::engine(const std::string& bundle) const {
  const auto found = table_.sockets.find(bundle);
  EnginePointer best;
  for (const auto& engine : all_) {
    if (found == table_.sockets.end() || !contains(found->second, engine->socket)) continue;
    if (!best || std::make_pair(engine->is_full(), engine->open) < std::make_pair(best->is_full(), best->open)) {
      best = engine;
    }
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

std::string Routes::bundle_for(const std::string& model) const {
  const auto& bundles = table_.bundles;
  if (bundles.empty()) throw RefusedRequest({code::kRestarting, "the server is starting; send it again"});
  if (contains(bundles, model)) return model;
  if (!model.empty()) {
    const std::string shown = valid_utf8(model.substr(0, kShownBytes));
    throw RefusedRequest(
        {code::kInvalidRequest, "there is no model '" + shown + "' here; this server has " + joined(bundles)});
  }
  if (bundles.size() > 1) {
    throw RefusedRequest(
        {code::kInvalidRequest, "this server has several models; set the input MODEL to one of " + joined(bundles)});
  }
  return bundles.front();
}

}  // namespace dragoman
