# frozen_string_literal: true

require_relative "helper"
require "logger"
require "stringio"
require "socket"

# What the library calls: missed renewals, log lines, credentials.
class TestCallbacks < OnelockTest
  def test_missed_renewals_are_told
    told = Queue.new
    with_server do |server, url|
      client = connect(url)
      lease = client.lock(unused, ttl: 6, on_jeopardy: ->(at_risk) { told << at_risk }).acquire
      Process.kill(:STOP, server)
      assert_same lease, Timeout.timeout(LONG) { told.pop }
      assert_equal :expired, lease.wait_lost(LONG)
    end
  end

  def test_log_lines_reach_the_logger
    lines = Queue.new
    logger = Logger.new(StringIO.new)
    logger.define_singleton_method(:add) { |severity, message = nil, program = nil| lines << [severity, message, program] }
    Onelock.log(logger, level: :debug)
    connect
    severity, message, program = Timeout.timeout(LONG) { lines.pop }
    assert_includes [Logger::DEBUG, Logger::INFO, Logger::WARN], severity
    assert_equal "onelock", program
    assert_equal Encoding::UTF_8, message.encoding
    assert_raises(Onelock::InvalidArgument) { Onelock.log(logger, level: :loud) }
  ensure
    Onelock.log(nil)
  end

  def test_a_logger_works_in_a_child_and_at_the_end
    program = <<~'RUBY'
      require "onelock"
      require "logger"
      $stdout.sync = true
      Onelock.log(Logger.new($stdout), level: :debug)
      client = Onelock::Client.new
      client.lock(ARGV[0]).synchronize { nil }
      Process.wait(fork { client.lock(ARGV[0]).synchronize { puts "child" } })
      $lease = client.lock(ARGV[0]).acquire
      puts "end"
    RUBY
    said = ruby(program, unused)
    assert_match(/onelock: .*child.*end/m, said)
  end

  def test_credentials_are_asked_for_each_connection
    user = unused("user").tr(":", "-")
    redis.call(:acl, :setuser, user, "on", ">secret", "~*", "&*", "+@all")
    asked = Queue.new
    client = connect(credentials: lambda {
      asked << Thread.current
      [user, "secret"]
    })
    client.lock(unused).synchronize { |lease| assert_predicate lease, :held? }
    refute_predicate asked, :empty?
    wrong = Onelock::Client.new(URL, credentials: -> { [user, "guess"] })
    error = assert_raises(Onelock::AuthenticationFailed) { wrong.check }
    refute_includes error.message, "guess"
    failing = Onelock::Client.new(URL, credentials: -> { raise IOError, "the vault is closed" })
    error = assert_raises(Onelock::ServerUnavailable) { failing.check }
    assert_includes error.message, "the vault is closed"
    assert_raises(Onelock::InvalidArgument) { Onelock::Client.new(URL.sub("//", "//a:b@"), credentials: -> { "c" }) }
  ensure
    redis.call(:acl, :deluser, user)
  end
end
