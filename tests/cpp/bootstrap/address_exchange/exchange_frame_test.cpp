// What comes from outside is never believed: headers, answers and notices, right and broken.

#include "bootstrap/address_exchange/exchange_frame.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "bootstrap/address_exchange/pending_connections.hpp"
#include "bootstrap/address_exchange/response.hpp"

namespace torch::comms::bootstrap {
namespace {

constexpr int kSize = 13;

base::Secret secret(uint8_t seed) {
  base::Secret result;
  result.fill(std::byte{seed});
  return result;
}
ExchangeEndpointId endpoint_of(int rank) { return {rank, kSize, 5, secret(9)}; }

// What the client of `rank` in `round` sends.
ExchangeFrame request_to(int rank, int round) {
  ExchangeFrame frame;
  frame.round = static_cast<uint8_t>(round);
  frame.from = BruckRounds{rank, kSize}.client(round);
  frame.to = rank;
  frame.size = kSize;
  frame.job = secret(9);
  return frame;
}

// What `rank` answers in `round`, in full.
std::string response_of(int rank, int round, const std::vector<std::string>& blobs) {
  ExchangeFrame head = request_to(rank, round);
  std::swap(head.from, head.to);
  ResponseWriter writer(head, blobs,
                        BruckRounds{rank, kSize}.has_next(round) ? "10.0.0.1:4711" : "");
  std::string bytes;
  while (writer.write(100, bytes)) continue;
  return bytes;
}

std::string_view bytes_of(const ExchangeFrame& frame) {
  return {reinterpret_cast<const char*>(&frame), sizeof frame};
}

TEST(Frame, AQuestionOfTheRightClientMayComeIn) {
  for (int round = 0; round < 4; ++round)
    EXPECT_EQ(request_drop_reason(request_to(3, round), endpoint_of(3)), DropReason::kNone);
}

TEST(Frame, EveryOtherQuestionIsRefusedForItsReason) {
  const auto refused = [](auto change) {
    ExchangeFrame frame = request_to(3, 1);
    change(frame);
    return request_drop_reason(frame, endpoint_of(3));
  };
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.magic = 0x20544547; }), DropReason::kUnknownProtocol);
  EXPECT_EQ(refused([](ExchangeFrame& f) { ++f.version; }), DropReason::kVersionMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.job = secret(8); }), DropReason::kJobMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.size = kSize + 1; }), DropReason::kSizeMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.to = 4; }), DropReason::kRankMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.from = kSize; }), DropReason::kRankMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.from = -1; }), DropReason::kRankMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.from = 2; }), DropReason::kRankMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.round = 4; }), DropReason::kRankMismatch);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.kind = ExchangeFrameKind::kResponse; }),
            DropReason::kUnknownProtocol);
  EXPECT_EQ(refused([](ExchangeFrame& f) { f.bytes = 1; }), DropReason::kTooLarge);
}

std::vector<std::string> some_blobs() {
  std::vector<std::string> blobs(kSize);
  for (size_t i = 0; i < kSize; ++i) blobs[i] = std::string(i * 37, static_cast<char>('a' + i));
  blobs[4] = std::string(kMaxBlobBytes, 'z');
  return blobs;
}

TEST(Answer, BringsTheBlobsOfItsRoundAndNoOther) {
  const auto blobs = some_blobs();
  for (int round = 0; round < 4; ++round) {
    const int source = BruckRounds{3, kSize}.source(round);
    std::vector<std::string> got(kSize);
    ResponseReader reader(endpoint_of(3), source, round, got);
    EXPECT_EQ(reader.feed(response_of(source, round, blobs)), ResponseReader::State::kResponse);
    EXPECT_EQ(reader.contact().empty(), round == 3);
    const int number = BruckRounds{3, kSize}.blobs(round);
    for (int i = 0; i < kSize; ++i) {
      const auto rank = static_cast<size_t>((source + i) % kSize);
      EXPECT_EQ(got[rank], i < number ? blobs[rank] : "");
    }
  }
}

TEST(Answer, ATextOverItsCapIsRefusedBeforeItIsRead) {
  const int source = BruckRounds{3, kSize}.source(0);
  auto bytes = response_of(source, 0, some_blobs());
  const uint16_t huge = 60000;
  std::memcpy(bytes.data() + sizeof(ExchangeFrame), &huge, sizeof huge);
  std::vector<std::string> got(kSize);
  ResponseReader reader(endpoint_of(3), source, 0, got);
  EXPECT_EQ(reader.feed(bytes), ResponseReader::State::kInvalid);
  EXPECT_EQ(reader.drop_reason(), DropReason::kTooLarge);
}

TEST(Answer, APayloadOverItsCapIsRefusedByItsHeader) {
  const int source = BruckRounds{3, kSize}.source(2);
  ExchangeFrame head = request_to(source, 2);
  std::swap(head.from, head.to);
  head.kind = ExchangeFrameKind::kResponse;
  head.bytes = static_cast<uint32_t>(max_response_bytes(4)) + 1;
  std::vector<std::string> got(kSize);
  ResponseReader reader(endpoint_of(3), source, 2, got);
  EXPECT_EQ(reader.feed(bytes_of(head)), ResponseReader::State::kInvalid);
  EXPECT_EQ(reader.drop_reason(), DropReason::kTooLarge);
}

TEST(Answer, WhereOnlyANoticeCanComeAnAnswerIsWrong) {
  const int source = BruckRounds{3, kSize}.source(1);
  ResponseReader reader(endpoint_of(3), source, 1, {});
  EXPECT_EQ(reader.feed(response_of(source, 1, some_blobs())), ResponseReader::State::kInvalid);
}

TEST(Notice, ComesBackAsItWas) {
  const FailureNotice notice{Errc::kTimeout, 7, "rank 7 is late"};
  const auto back = parse_notice(to_bytes(notice), 8);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->code, notice.code);
  EXPECT_EQ(back->peer, 7);
  EXPECT_EQ(back->reason, notice.reason);
}

TEST(Notice, WhatNoRankWroteIsNone) {
  EXPECT_FALSE(parse_notice("", 8));
  EXPECT_FALSE(parse_notice(to_bytes({Errc::kTimeout, 8, ""}), 8));
  EXPECT_FALSE(parse_notice(std::string(kMaxFailureBytes + 1, '\1'), 8));
  EXPECT_FALSE(parse_notice("\xff" + to_bytes({Errc::kTimeout, 1, ""}).substr(1), 8));
  EXPECT_EQ(to_bytes({Errc::kTimeout, 1, std::string(5000, 'x')}).size(), kMaxFailureBytes);
  EXPECT_EQ(parse_notice(to_bytes({Errc::kTimeout, 1, "a\x1b[2Jb"}), 8)->reason, "a [2Jb");
}

// 100,000 answers with a few bytes changed, cut or added, in pieces of any size.
TEST(Answer, BrokenBytesAreRefusedOrHarmless) {
  std::mt19937 random(1);
  const auto blobs = some_blobs();
  std::vector<std::string> good;
  for (int round = 0; round < 4; ++round)
    good.push_back(response_of(BruckRounds{3, kSize}.source(round), round, blobs));
  std::array<int, 4> states{};
  std::vector<std::string> got(kSize);
  for (int i = 0; i < 100'000; ++i) {
    const size_t round = random() % 4;
    std::string bytes = good[round];
    // Most changes near the start, where the numbers are.
    const auto place = [&] { return random() % (random() % 4 == 0 ? bytes.size() : 80); };
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes)
      bytes[place()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    if (random() % 8 == 0) bytes.append(random() % 100, 'x');
    ResponseReader reader(endpoint_of(3), BruckRounds{3, kSize}.source(static_cast<int>(round)),
                          static_cast<int>(round), got);
    auto state = ResponseReader::State::kIncomplete;
    for (size_t at = 0; at < bytes.size() && state == ResponseReader::State::kIncomplete;) {
      const size_t part = 1 + random() % 3000;
      state = reader.feed(std::string_view(bytes).substr(at, part));
      at += part;
    }
    ++states[static_cast<size_t>(state)];
    for (const auto& blob : got) ASSERT_LE(blob.size(), kMaxBlobBytes);
    ASSERT_LE(reader.contact().size(), kMaxContactBytes);
  }
  EXPECT_GT(states[static_cast<size_t>(ResponseReader::State::kInvalid)], 50'000);
  EXPECT_GT(states[static_cast<size_t>(ResponseReader::State::kResponse)],
            100);  // other letters alone
}

class Guests : public testing::Test {
 protected:
  PendingConnections pending{endpoint_of(3),
                             {.max_connections = 4, .handshake_timeout = std::chrono::seconds(5)}};
  PendingConnections::ConnectionIds close;
  const Moment now = std::chrono::seconds(7);
};

TEST_F(Guests, AQuestionMayComeInAnyPieces) {
  const auto request = request_to(3, 2);
  pending.on_open(1, now, close);
  for (size_t i = 0; i + 1 < sizeof request; ++i)
    ASSERT_EQ(pending.on_bytes(1, bytes_of(request).substr(i, 1)),
              PendingConnections::HandshakeStatus::kIncomplete);
  EXPECT_EQ(pending.on_bytes(1, bytes_of(request).substr(sizeof request - 1)),
            PendingConnections::HandshakeStatus::kAccepted);
  EXPECT_EQ(pending.request().round, 2);
  EXPECT_EQ(pending.count(), 0u);
  EXPECT_EQ(pending.format_drops(), "");
}

TEST_F(Guests, StrangersAreShownTheDoorAtTheirFirstWord) {
  for (const char* text : {"GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "SSH-2.0-x"}) {
    pending.on_open(1, now, close);
    EXPECT_EQ(pending.on_bytes(1, std::string_view(text, 4)),
              PendingConnections::HandshakeStatus::kClose);
  }
  EXPECT_EQ(pending.format_drops(), "dropped 3 connections: 3 with an unknown protocol");
}

TEST_F(Guests, TheSilentAreClosedInTime) {
  pending.on_open(1, now, close);
  pending.on_open(2, now + std::chrono::seconds(1), close);
  EXPECT_EQ(pending.next_time(), now + std::chrono::seconds(5));
  pending.on_time(now + std::chrono::seconds(5), close);
  EXPECT_EQ(close, PendingConnections::ConnectionIds{1});
  EXPECT_EQ(pending.dropped(DropReason::kHandshakeTimeout), 1u);
}

TEST_F(Guests, OfTooManyTheOldestGivesWay) {
  for (uint32_t link = 1; link <= 204; ++link) pending.on_open(link, now, close);
  EXPECT_EQ(close.size(), 200u);
  EXPECT_EQ(pending.count(), 4u);
  EXPECT_EQ(pending.on_bytes(204, bytes_of(request_to(3, 0))),
            PendingConnections::HandshakeStatus::kAccepted);
}

TEST_F(Guests, RandomBytesNeverComeIn) {
  std::mt19937 random(2);
  for (uint32_t link = 1; link <= 100'000; ++link) {
    ExchangeFrame frame = request_to(3, 1);
    auto* bytes = reinterpret_cast<char*>(&frame);
    // Everything but `instance`, which may be any number.
    const size_t at = random() % (sizeof frame - 8);
    const size_t place = at < offsetof(ExchangeFrame, instance) ? at : at + 8;
    bytes[place] = static_cast<char>(bytes[place] ^ static_cast<char>(1 + random() % 255));
    close.clear();
    pending.on_open(link, now, close);
    ASSERT_EQ(pending.on_bytes(link, bytes_of(frame)), PendingConnections::HandshakeStatus::kClose)
        << place;
  }
}

}  // namespace
}  // namespace torch::comms::bootstrap
