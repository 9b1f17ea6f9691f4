#include "publisher.hpp"

#include <algorithm>
#include <vector>

namespace dragoman {
namespace {

const char* const kRestarts = "dragoman_restarts_total";

}  // namespace

Publisher::~Publisher() {  // children first
  for (const auto& [key, metric] : metrics_) ignore(TRITONSERVER_MetricDelete(metric));
  for (const auto& [name, series] : series_) ignore(TRITONSERVER_MetricFamilyDelete(series.family));
}

void Publisher::take_series(const Frame& frame) {
  const auto& parts = frame.parts;  // name, kind, help, label of each
  for (std::size_t at = 0; at + 3 < parts.size(); at += 4) {
    Series series{parts[at + 1], parts[at + 3], nullptr};
    const auto kind = series.kind == "counter" ? TRITONSERVER_METRIC_KIND_COUNTER : TRITONSERVER_METRIC_KIND_GAUGE;
    check(TRITONSERVER_MetricFamilyNew(&series.family, kind, parts[at].c_str(), parts[at + 2].c_str()));
    series_[parts[at]] = series;
  }
}

void Publisher::take_metrics(const Engine& engine, const Frame& frame) {
  const auto& parts = frame.parts;  // name, label, amount of each
  for (std::size_t at = 0; at + 2 < parts.size(); at += 3) {
    const auto& name = parts[at];
    const auto amount = number_in<double>(parts[at + 2]);
    if (series_.at(name).kind == "counter") {
      apply(name, engine.bundle, parts[at + 1], amount);
    } else {
      gauges_[{name, engine.bundle}][engine.socket] = amount;
      show_gauge(name, engine.bundle);
    }
  }
}

void Publisher::take_table(const RoutingTable& table) {
  for (auto& [key, of_engines] : gauges_) {
    const auto& sockets = table.sockets.at(key.second);
    for (auto at = of_engines.begin(); at != of_engines.end();) {
      const bool answers = std::find(sockets.begin(), sockets.end(), at->first) != sockets.end();
      at = answers ? std::next(at) : of_engines.erase(at);
    }
    show_gauge(key.first, key.second);
  }
  for (const auto& [what, count] : table.restarts) {
    apply(kRestarts, "", what, static_cast<double>(count - restarts_[what]));
    restarts_[what] = count;
  }
}

void Publisher::log_error(const std::string& text) noexcept { dragoman::log_error(text.c_str()); }

// Of several engines the sum; of shares the mean.
void Publisher::show_gauge(const std::string& name, const std::string& model) {
  const auto& of_engines = gauges_[{name, model}];
  double sum = 0.0;
  for (const auto& [engine, value] : of_engines) sum += value;
  const bool is_share = series_.at(name).kind == "share";
  apply(name, model, "", is_share && !of_engines.empty() ? sum / static_cast<double>(of_engines.size()) : sum);
}

void Publisher::apply(const std::string& name, const std::string& model, const std::string& label, double amount) {
  TRITONSERVER_Metric* const shown = metric(name, model, label);
  check(series_.at(name).kind == "counter" ? TRITONSERVER_MetricIncrement(shown, amount)
                                           : TRITONSERVER_MetricSet(shown, amount));
}

TRITONSERVER_Metric* Publisher::metric(const std::string& name, const std::string& model, const std::string& label) {
  const auto& series = series_.at(name);
  auto& found = metrics_[{name, model, label}];
  if (found == nullptr) {
    std::vector<const TRITONSERVER_Parameter*> labels;
    const auto add = [&labels](const char* key, const std::string& value) {
      labels.push_back(TRITONSERVER_ParameterNew(key, TRITONSERVER_PARAMETER_STRING, value.c_str()));
    };
    if (!model.empty()) add("model", model);
    if (!series.label.empty()) add(series.label.c_str(), label);
    TRITONSERVER_Error* const error = TRITONSERVER_MetricNew(&found, series.family, labels.data(), labels.size());
    for (const auto* each : labels) TRITONSERVER_ParameterDelete(const_cast<TRITONSERVER_Parameter*>(each));
    check(error);
  }
  return found;
}

}  // namespace dragoman
