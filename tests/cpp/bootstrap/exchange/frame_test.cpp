// What comes from outside is never believed: headers, answers and notices, right and broken.

#include "bootstrap/exchange/frame.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "bootstrap/exchange/answer.hpp"
#include "bootstrap/exchange/reception.hpp"

namespace torch::comms::bootstrap {
namespace {

constexpr int kSize = 13;

base::Secret secret(uint8_t seed) {
  base::Secret made;
  made.fill(std::byte{seed});
  return made;
}
Door door_of(int rank) { return {rank, kSize, 5, secret(9)}; }

// What the client of `rank` in `round` sends.
Frame question_to(int rank, int round) {
  Frame frame;
  frame.round = static_cast<uint8_t>(round);
  frame.from = Rounds{rank, kSize}.client(round);
  frame.to = rank;
  frame.size = kSize;
  frame.job = secret(9);
  return frame;
}

// What `rank` answers in `round`, in full.
std::string answer_of(int rank, int round, const std::vector<std::string>& blobs) {
  Frame head = question_to(rank, round);
  std::swap(head.from, head.to);
  AnswerWriter writer(head, blobs, Rounds{rank, kSize}.has_next(round) ? "10.0.0.1:4711" : "");
  std::string bytes;
  while (writer.write(100, bytes)) continue;
  return bytes;
}

std::string_view bytes_of(const Frame& frame) {
  return {reinterpret_cast<const char*>(&frame), sizeof frame};
}

TEST(Frame, AQuestionOfTheRightClientMayComeIn) {
  for (int round = 0; round < 4; ++round)
    EXPECT_EQ(why_not_ask(question_to(3, round), door_of(3)), Refusal::kNone);
}

TEST(Frame, EveryOtherQuestionIsRefusedForItsReason) {
  const auto refused = [](auto change) {
    Frame frame = question_to(3, 1);
    change(frame);
    return why_not_ask(frame, door_of(3));
  };
  EXPECT_EQ(refused([](Frame& f) { f.magic = 0x20544547; }), Refusal::kNotOurs);
  EXPECT_EQ(refused([](Frame& f) { ++f.version; }), Refusal::kOtherVersion);
  EXPECT_EQ(refused([](Frame& f) { f.job = secret(8); }), Refusal::kOtherJob);
  EXPECT_EQ(refused([](Frame& f) { f.size = kSize + 1; }), Refusal::kOtherSize);
  EXPECT_EQ(refused([](Frame& f) { f.to = 4; }), Refusal::kOtherRank);
  EXPECT_EQ(refused([](Frame& f) { f.from = kSize; }), Refusal::kOtherRank);
  EXPECT_EQ(refused([](Frame& f) { f.from = -1; }), Refusal::kOtherRank);
  EXPECT_EQ(refused([](Frame& f) { f.from = 2; }), Refusal::kOtherRank);
  EXPECT_EQ(refused([](Frame& f) { f.round = 4; }), Refusal::kOtherRank);
  EXPECT_EQ(refused([](Frame& f) { f.kind = FrameKind::kAnswer; }), Refusal::kNotOurs);
  EXPECT_EQ(refused([](Frame& f) { f.bytes = 1; }), Refusal::kTooLarge);
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
    const int source = Rounds{3, kSize}.source(round);
    std::vector<std::string> got(kSize);
    ReplyReader reader(door_of(3), source, round, got);
    EXPECT_EQ(reader.take(answer_of(source, round, blobs)), ReplyReader::State::kAnswer);
    EXPECT_EQ(reader.contact().empty(), round == 3);
    const int number = Rounds{3, kSize}.blobs(round);
    for (int i = 0; i < kSize; ++i) {
      const auto rank = static_cast<size_t>((source + i) % kSize);
      EXPECT_EQ(got[rank], i < number ? blobs[rank] : "");
    }
  }
}

TEST(Answer, ATextOverItsCapIsRefusedBeforeItIsRead) {
  const int source = Rounds{3, kSize}.source(0);
  auto bytes = answer_of(source, 0, some_blobs());
  const uint16_t huge = 60000;
  std::memcpy(bytes.data() + sizeof(Frame), &huge, sizeof huge);
  std::vector<std::string> got(kSize);
  ReplyReader reader(door_of(3), source, 0, got);
  EXPECT_EQ(reader.take(bytes), ReplyReader::State::kWrong);
  EXPECT_EQ(reader.wrong(), Refusal::kTooLarge);
}

TEST(Answer, APayloadOverItsCapIsRefusedByItsHeader) {
  const int source = Rounds{3, kSize}.source(2);
  Frame head = question_to(source, 2);
  std::swap(head.from, head.to);
  head.kind = FrameKind::kAnswer;
  head.bytes = static_cast<uint32_t>(most_answer_bytes(4)) + 1;
  std::vector<std::string> got(kSize);
  ReplyReader reader(door_of(3), source, 2, got);
  EXPECT_EQ(reader.take(bytes_of(head)), ReplyReader::State::kWrong);
  EXPECT_EQ(reader.wrong(), Refusal::kTooLarge);
}

TEST(Answer, WhereOnlyANoticeCanComeAnAnswerIsWrong) {
  const int source = Rounds{3, kSize}.source(1);
  ReplyReader reader(door_of(3), source, 1, {});
  EXPECT_EQ(reader.take(answer_of(source, 1, some_blobs())), ReplyReader::State::kWrong);
}

TEST(Notice, ComesBackAsItWas) {
  const Notice notice{Errc::kTimeout, 7, "rank 7 is late"};
  const auto back = parse_notice(to_bytes(notice), 8);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->code, notice.code);
  EXPECT_EQ(back->peer, 7);
  EXPECT_EQ(back->why, notice.why);
}

TEST(Notice, WhatNoRankWroteIsNone) {
  EXPECT_FALSE(parse_notice("", 8));
  EXPECT_FALSE(parse_notice(to_bytes({Errc::kTimeout, 8, ""}), 8));
  EXPECT_FALSE(parse_notice(std::string(kMaxNoticeBytes + 1, '\1'), 8));
  EXPECT_FALSE(parse_notice("\xff" + to_bytes({Errc::kTimeout, 1, ""}).substr(1), 8));
  EXPECT_EQ(to_bytes({Errc::kTimeout, 1, std::string(5000, 'x')}).size(), kMaxNoticeBytes);
  EXPECT_EQ(parse_notice(to_bytes({Errc::kTimeout, 1, "a\x1b[2Jb"}), 8)->why, "a [2Jb");
}

// 100,000 answers with a few bytes changed, cut or added, in pieces of any size.
TEST(Answer, BrokenBytesAreRefusedOrHarmless) {
  std::mt19937 random(1);
  const auto blobs = some_blobs();
  std::vector<std::string> good;
  for (int round = 0; round < 4; ++round)
    good.push_back(answer_of(Rounds{3, kSize}.source(round), round, blobs));
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
    ReplyReader reader(door_of(3), Rounds{3, kSize}.source(static_cast<int>(round)),
                       static_cast<int>(round), got);
    auto state = ReplyReader::State::kNotYet;
    for (size_t at = 0; at < bytes.size() && state == ReplyReader::State::kNotYet;) {
      const size_t part = 1 + random() % 3000;
      state = reader.take(std::string_view(bytes).substr(at, part));
      at += part;
    }
    ++states[static_cast<size_t>(state)];
    for (const auto& blob : got) ASSERT_LE(blob.size(), kMaxBlobBytes);
    ASSERT_LE(reader.contact().size(), kMaxContactBytes);
  }
  EXPECT_GT(states[static_cast<size_t>(ReplyReader::State::kWrong)], 50'000);
  EXPECT_GT(states[static_cast<size_t>(ReplyReader::State::kAnswer)], 100);  // other letters alone
}

class Guests : public testing::Test {
 protected:
  Reception reception{door_of(3), {.guests = 4, .patience = std::chrono::seconds(5)}};
  Reception::Links close;
  const Moment now = std::chrono::seconds(7);
};

TEST_F(Guests, AQuestionMayComeInAnyPieces) {
  const auto question = question_to(3, 2);
  reception.on_open(1, now, close);
  for (size_t i = 0; i + 1 < sizeof question; ++i)
    ASSERT_EQ(reception.on_bytes(1, bytes_of(question).substr(i, 1)), Reception::Answer::kNotYet);
  EXPECT_EQ(reception.on_bytes(1, bytes_of(question).substr(sizeof question - 1)),
            Reception::Answer::kComeIn);
  EXPECT_EQ(reception.question().round, 2);
  EXPECT_EQ(reception.guests(), 0u);
  EXPECT_EQ(reception.counts(), "");
}

TEST_F(Guests, StrangersAreShownTheDoorAtTheirFirstWord) {
  for (const char* word : {"GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "SSH-2.0-x"}) {
    reception.on_open(1, now, close);
    EXPECT_EQ(reception.on_bytes(1, std::string_view(word, 4)), Reception::Answer::kClose);
  }
  EXPECT_EQ(reception.counts(), "dropped 3 connections: 3 not ours");
}

TEST_F(Guests, TheSilentAreClosedInTime) {
  reception.on_open(1, now, close);
  reception.on_open(2, now + std::chrono::seconds(1), close);
  EXPECT_EQ(reception.next_time(), now + std::chrono::seconds(5));
  reception.on_time(now + std::chrono::seconds(5), close);
  EXPECT_EQ(close, Reception::Links{1});
  EXPECT_EQ(reception.refused(Refusal::kTooSlow), 1u);
}

TEST_F(Guests, OfTooManyTheOldestGivesWay) {
  for (uint32_t link = 1; link <= 204; ++link) reception.on_open(link, now, close);
  EXPECT_EQ(close.size(), 200u);
  EXPECT_EQ(reception.guests(), 4u);
  EXPECT_EQ(reception.on_bytes(204, bytes_of(question_to(3, 0))), Reception::Answer::kComeIn);
}

TEST_F(Guests, RandomBytesNeverComeIn) {
  std::mt19937 random(2);
  for (uint32_t link = 1; link <= 100'000; ++link) {
    Frame frame = question_to(3, 1);
    auto* bytes = reinterpret_cast<char*>(&frame);
    // Everything but `instance`, which may be any number.
    const size_t at = random() % (sizeof frame - 8);
    const size_t place = at < offsetof(Frame, instance) ? at : at + 8;
    bytes[place] = static_cast<char>(bytes[place] ^ static_cast<char>(1 + random() % 255));
    close.clear();
    reception.on_open(link, now, close);
    ASSERT_EQ(reception.on_bytes(link, bytes_of(frame)), Reception::Answer::kClose) << place;
  }
}

}  // namespace
}  // namespace torch::comms::bootstrap
