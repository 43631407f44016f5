// One RE2, or one RE2::Set, searched by the threads of a script: what `make cliffs` compares with.
//
// Input: lines "P length", "T length" (each followed by that many bytes: a pattern, a text), and "R threads limit n" followed
// by n numbers of texts: thread t searches those at t, t + threads, ... in order, and begins none after so many milliseconds.
// Output of R: "nanoseconds matches" a search, where matches is the number of patterns that match; -1 for one not begun.
#include <re2/re2.h>
#include <re2/set.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string ReadBytes(size_t length) {
  std::string bytes(length, '\0');
  std::cin.get();  // The line's end.
  std::cin.read(&bytes[0], static_cast<std::streamsize>(length));
  return bytes;
}

struct Sample {
  long long nanoseconds;
  size_t matches;
};

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  RE2::Options options;
  options.set_encoding(RE2::Options::EncodingLatin1);
  options.set_log_errors(false);
  std::vector<std::string> patterns, texts;
  std::unique_ptr<RE2> one;
  std::unique_ptr<RE2::Set> many;
  std::string command;
  while (std::cin >> command) {
    if (command == "P" || command == "T") {
      size_t length = 0;
      std::cin >> length;
      (command == "P" ? patterns : texts).push_back(ReadBytes(length));
      continue;
    }
    size_t threads = 0, limit = 0, n = 0;
    std::cin >> threads >> limit >> n;
    std::vector<size_t> order(n);
    for (size_t& text : order) std::cin >> text;
    if (!one && !many) {
      if (patterns.size() == 1) {
        one.reset(new RE2(patterns[0], options));
        if (!one->ok()) {
          std::cerr << one->error() << std::endl;
          return 1;
        }
      } else {
        many.reset(new RE2::Set(options, RE2::UNANCHORED));
        for (const std::string& pattern : patterns) {
          std::string error;
          if (many->Add(pattern, &error) < 0) {
            std::cerr << error << std::endl;
            return 1;
          }
        }
        if (!many->Compile()) return 1;
      }
    }
    std::vector<Sample> samples(n, Sample{-1, 0});
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit);
    std::vector<std::thread> running;
    for (size_t t = 0; t < threads; t++) {
      running.emplace_back([&, t] {
        std::vector<int> found;
        for (size_t i = t; i < n; i += threads) {
          auto start = std::chrono::steady_clock::now();
          if (start >= end) break;
          if (one) {
            samples[i].matches = RE2::PartialMatch(texts[order[i]], *one) ? 1 : 0;
          } else {
            found.clear();
            many->Match(texts[order[i]], &found);
            samples[i].matches = found.size();
          }
          auto took = std::chrono::steady_clock::now() - start;
          samples[i].nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
        }
      });
    }
    for (std::thread& thread : running) thread.join();
    for (const Sample& sample : samples) {
      std::cout << sample.nanoseconds << ' ' << sample.matches << '\n';
    }
    std::cout << std::flush;
  }
  return 0;
}
