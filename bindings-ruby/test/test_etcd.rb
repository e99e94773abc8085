# frozen_string_literal: true

require_relative "helper"

# Locks in etcd: waiting, interrupts, forks and the end of the program, as on Redis.
class TestEtcd < OnelockTest
  # One server for all, which ends when it has no input any more.
  def self.address
    @address ||= begin
      server = IO.popen([File.join(ROOT, "tools/with-etcd.sh"), "sh", "-c", "echo $ONELOCK_URL; exec cat"], "r+")
      Minitest.after_run { server.close }
      server.gets.chomp
    end
  end

  def setup
    @url = self.class.address
    @client = connect(@url)
    @name = unused
    @lock = @client.lock(@name)
  end

  def assert_free(name = @name)
    eventually("nobody holds it") { @client.inspect(name).nil? }
  end

  def waiting(&ends)
    holder = connect(@url).lock(@name).acquire
    thread = Thread.new do
      Thread.current.report_on_exception = false
      ends.call
    end
    eventually("it waits") { @client.stats.waiting == 1 }
    [holder, thread]
  end

  def test_a_waiter_is_woken_and_other_threads_run_meanwhile
    holder, thread = waiting { @lock.acquire }
    ticks = 0
    counter = Thread.new { loop { (ticks += 1) && sleep(0.001) } }
    eventually("the other thread runs") { ticks > 20 }
    counter.kill
    assert_predicate thread, :alive?
    token = holder.fencing_token
    assert_equal :released, holder.release
    lease = thread.value
    assert_operator lease.fencing_token, :>, token
    assert_equal :released, lease.release
    assert_free
  end

  def test_what_ends_a_wait_leaves_no_place
    [-> { Timeout.timeout(0.3) { @lock.acquire } }, -> { @lock.acquire(wait: 0.3) }].each do |way|
      holder, thread = waiting(&way)
      assert_raises(Timeout::Error, Onelock::LockTimeout) { thread.value }
      assert_predicate holder, :held?
      holder.release
      assert_free
    end
    holder, thread = waiting { @lock.acquire }
    thread.kill
    assert_nil thread.value
    holder.release
    assert_free
  end

  def test_a_child_has_no_lease_of_its_parent
    lease = @lock.acquire
    pid = fork do
      refused = begin
        lease.release
      rescue Onelock::LeaseForked
        true
      end
      is_good = refused == true && !lease.held? && @lock.try_acquire.nil?
      is_good &&= @client.lock("#{@name}:2").synchronize(&:held?)
      exit!(is_good ? 0 : 1)
    end
    _, status = Timeout.timeout(LONG) { Process.wait2(pid) }
    assert_predicate status, :success?
    assert_predicate lease, :held?
    assert_equal :released, lease.release
    assert_free("#{@name}:2")
  end

  def test_the_end_of_the_program_releases
    program = 'require "onelock"; $lease = Onelock::Client.new(ARGV[1]).lock(ARGV[0], ttl: 3600).acquire'
    assert_empty ruby(program, @name, @url)
    assert_nil @client.inspect(@name)
    assert_match(/gone/, ruby("#{program}; raise 'gone'", @name, @url, status: false))
    assert_nil @client.inspect(@name)
  end
end
