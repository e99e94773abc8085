# frozen_string_literal: true

# Tests run against the server in $ONELOCK_URL; `tools/ruby/test.sh` starts one.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "minitest/autorun"
require "onelock"
require "redis"
require "securerandom"
require "timeout"
require "tmpdir"

class OnelockTest < Minitest::Test
  URL = ENV.fetch("ONELOCK_URL")
  ROOT = File.expand_path("../..", __dir__)
  # Longer than anything takes on a busy machine; a test that waits so long has failed.
  LONG = 60

  # Clients of this test, which are closed at its end.
  def connect(url = URL, **options)
    client = Onelock::Client.open(url, **options)
    (@clients ||= []) << client
    client
  end

  def teardown
    @clients&.each(&:close)
    @redis&.close
  end

  # A name that no other test has.
  def unused(prefix = "test")
    "#{prefix}:#{SecureRandom.hex(6)}"
  end

  # Another client of the server.
  def redis
    @redis ||= Redis.new(url: URL)
  end

  # Waits until the block is true.
  def eventually(what)
    last = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LONG
    until (found = yield)
      flunk("not within #{LONG} s: #{what}") if Process.clock_gettime(Process::CLOCK_MONOTONIC) > last
      sleep 0.005
    end
    found
  end

  # A server of its own, which the block may stop.
  def with_server
    Dir.mktmpdir do |folder|
      program = File.join(ENV.fetch("ONELOCK_SERVERS", File.join(ROOT, ".tools/bin")), "valkey-server-9.1")
      words = ["--port", "0", "--unixsocket", "#{folder}/socket", "--save", "", "--dir", folder]
      server = spawn(program, *words, out: File::NULL)
      begin
        eventually("the server runs") { File.socket?("#{folder}/socket") }
        yield server, "unix://#{folder}/socket"
      ensure
        Process.kill(:KILL, server)
        Process.wait(server)
      end
    end
  end

  # Nothing is held, waits, or is still to be undone.
  def assert_nothing_left(client, *names)
    eventually("nothing is left: #{client.stats.to_h}") do
      client.stats.to_h.values_at(:held, :waiting, :cleaning).all?(&:zero?)
    end
    names.each { |name| refute redis.exists?(name), "#{name} is still there" }
  end

  # Runs the program in another process, and gives it a limit. Returns what it printed.
  def ruby(program, *arguments, env: {}, status: true)
    reader, writer = IO.pipe
    library = File.expand_path("../lib", __dir__)
    pid = spawn(env, "ruby", "-I", library, "-e", program, *arguments, out: writer, err: writer)
    writer.close
    output = Timeout.timeout(LONG) { reader.read.tap { Process.wait(pid) } }
    assert_equal status, $?.success?, output unless status.nil?
    output
  ensure
    reader&.close
  end
end
