# frozen_string_literal: true

require_relative "helper"
require "net/http"
require "socket"

# Garbage collection, forks, and the end of the program.
class TestProcess < OnelockTest
  def setup
    @client = connect
    @name = unused
    @lock = @client.lock(@name)
  end

  def drop_leases(number)
    number.times { |at| @client.lock("#{@name}:#{at}").acquire }
    number.times { |at| @client.lock("#{@name}:told:#{at}", on_lost: ->(*) {}).acquire }
    nil
  end

  def test_what_nobody_refers_to_is_released
    # in a thread of its own, so that nothing of it stays on this stack
    Thread.new { drop_leases(20) }.join
    eventually("they are collected") do
      GC.start
      @client.stats.held < 6
    end
    assert_operator redis.keys("#{@name}:*").size, :<, 40
  end

  def test_a_dropped_lease_is_told_under_w
    program = <<~RUBY
      require "onelock"
      client = Onelock::Client.new
      Thread.new { 50.times { |at| client.lock("#{@name}:\#{at}").acquire }; nil }.join
      GC.start
      kept = client.lock("#{@name}:kept").acquire
    RUBY
    said = ruby("$VERBOSE = true\n#{program}")
    assert_match(/onelock: the lease of "#{@name}:\d+" was neither released nor lost when it was dropped/, said)
    refute_match(/kept/, said)
    assert_empty ruby(program)
    assert_empty redis.keys("#{@name}:*")
  end

  def in_child
    reader, writer = IO.pipe
    pid = fork do
      reader.close
      begin
        writer.write(Marshal.dump(yield))
      rescue Exception => e # rubocop:disable Lint/RescueException
        writer.write(Marshal.dump(e.full_message))
      end
      writer.close
      exit!(0)
    end
    writer.close
    Timeout.timeout(LONG) { Marshal.load(reader.read).tap { Process.wait(pid) } } # rubocop:disable Security/MarshalLoad
  ensure
    reader&.close
  end

  def test_a_child_has_no_lease_of_its_parent
    told = Queue.new
    lease = @client.lock(@name, on_lost: ->(*) { told << 1 }).acquire
    found = in_child do
      error = begin
        lease.release
      rescue Onelock::LeaseForked => e
        e.kind
      end
      lease = nil
      GC.start
      [error, @client.lock(@name).try_acquire.nil?, @client.lock("#{@name}:2").synchronize(&:held?)]
    end
    assert_equal ["Forked", true, true], found
    assert_predicate lease, :held?
    assert_equal :released, lease.release
  end

  def test_a_child_leaves_the_scope_of_its_parent
    @lock.synchronize do |lease|
      pid = fork do
        # unwinds the scope
        exit(lease.held? ? 1 : 0)
      end
      _, status = Process.wait2(pid)
      assert_predicate status, :success?
      assert_predicate lease, :held?
      assert redis.exists?(@name)
    end
    refute redis.exists?(@name)
  end

  def test_callbacks_and_waiting_work_in_a_child
    # both threads exist in the parent
    parent = @client.lock(unused, ttl: 0.3).acquire
    told = Queue.new
    parent.on_lost { |_, reason| told << reason }
    redis.del(parent.name)
    assert_equal :taken, Timeout.timeout(LONG) { told.pop }
    found = in_child do
      inside = Queue.new
      lease = @client.lock(@name, ttl: 0.3, on_lost: ->(_, reason) { inside << reason }).acquire
      waiting = Thread.new { @client.lock("#{@name}:2").synchronize(&:held?) }
      @client.force_release(@name)
      [Timeout.timeout(LONG) { inside.pop }, lease.loss, waiting.value]
    end
    assert_equal [:taken, :taken, true], found
  end

  def test_a_fork_while_others_wait
    holder = @lock.acquire
    waiter = Thread.new { @client.lock(@name).acquire }
    eventually("it waits") { @client.stats.waiting == 1 }
    assert_equal(true, in_child { @client.lock("#{@name}:2").synchronize(&:held?) })
    holder.release
    assert_equal :released, waiter.value.release
  end

  def test_the_end_of_the_program_releases
    program = 'require "onelock"; $lease = Onelock::Client.new.lock(ARGV[0], on_lost: ->(*) {}).acquire'
    assert_empty ruby(program, @name)
    refute redis.exists?(@name)
    assert_match(/gone/, ruby("#{program}; raise 'gone'", @name, status: false))
    refute redis.exists?(@name)
  end

  PUMA = <<~'RUBY'
    require "onelock"
    CLIENT = Onelock::Client.new
    COUNTER = CLIENT.lock(ENV.fetch("NAME"), wait: 60)
    # the master uses it before it forks
    MASTER = COUNTER.synchronize(&:fencing_token)
    run(lambda do |_env|
      COUNTER.synchronize do
        path = ENV.fetch("COUNT")
        number = File.read(path).to_i
        sleep 0.001
        File.write(path, (number + 1).to_s)
      end
      [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
    end)
  RUBY

  def test_puma_with_preloaded_workers
    Dir.mktmpdir do |folder|
      File.write("#{folder}/config.ru", PUMA)
      File.write("#{folder}/count", "0")
      socket = "#{folder}/socket"
      env = { "NAME" => @name, "COUNT" => "#{folder}/count", "RUBYLIB" => File.expand_path("../lib", __dir__) }
      server = spawn(env, "puma", "--preload", "--workers", "3", "--threads", "3:3", "--bind", "unix://#{socket}", "--dir", folder,
                     "#{folder}/config.ru", out: "#{folder}/log", err: "#{folder}/log")
      begin
        pids = Array.new(6) { Thread.new { Array.new(20) { ask(socket, "#{folder}/log") } } }.flat_map(&:value)
        assert_equal "120", File.read("#{folder}/count")
        assert_operator pids.uniq.size, :>, 1, "several workers"
      ensure
        Process.kill(:TERM, server)
        Timeout.timeout(LONG) { Process.wait(server) }
      end
    end
    refute redis.exists?(@name)
  end

  def ask(path, log)
    eventually("puma answers: #{File.read(log) if File.exist?(log)}") do
      UNIXSocket.open(path) do |socket|
        socket.write("GET / HTTP/1.0\r\n\r\n")
        head, body = socket.read.split("\r\n\r\n", 2)
        head.start_with?("HTTP/1.0 200") && body
      end
    rescue Errno::ENOENT, Errno::ECONNREFUSED
      nil
    end
  end
end
