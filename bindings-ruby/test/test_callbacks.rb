# frozen_string_literal: true

require_relative "helper"
require "socket"

# What the library calls: missed renewals, credentials.
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
