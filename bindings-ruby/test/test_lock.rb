# frozen_string_literal: true

require_relative "helper"

class TestLock < OnelockTest
  def setup
    @client = connect
    @name = unused
    @lock = @client.lock(@name, wait: LONG)
  end

  def test_a_scope_holds_the_lock_and_returns_what_its_block_returns
    seen = @lock.synchronize do |lease|
      assert redis.exists?(@name)
      assert lease.held?
      refute lease.lost?
      assert_nil lease.loss
      assert_equal [@name, :lock, 1], [lease.name, lease.kind, lease.hold_count]
      assert_in_delta 30, lease.remaining, 10
      assert_equal :clock_bounded, lease.fencing_grade
      [lease, lease.fencing_token]
    end
    lease, token = seen
    assert_kind_of Integer, token
    refute lease.held?
    assert_equal 0, lease.remaining
    refute redis.exists?(@name)
    assert_operator @lock.synchronize(&:fencing_token), :>, token
  end

  def test_the_error_of_a_block_passes_and_the_lock_is_released
    error = assert_raises(IndexError) { @lock.synchronize { raise IndexError, "mine" } }
    assert_equal "mine", error.message
    refute redis.exists?(@name)
  end

  def test_every_other_way_out_of_a_block_releases
    assert_equal 1, leave_by_return
    assert_equal(2, @lock.synchronize { break 2 })
    assert_equal(3, catch(:out) { @lock.synchronize { throw :out, 3 } })
    assert_equal([4], [0].map { @lock.synchronize { next 4 } })
    refute redis.exists?(@name)
  end

  def leave_by_return
    @lock.synchronize { return 1 }
  end

  def test_one_try_and_a_wait_that_ends
    held = @lock.acquire
    assert_nil @lock.try_acquire
    assert_raises(Onelock::LockBusy) { @lock.acquire(wait: 0) }
    error = assert_raises(Onelock::LockTimeout) { @lock.acquire(wait: 0.05) }
    assert_kind_of Onelock::NotAcquired, error
    assert_kind_of StandardError, error
    assert_predicate error, :retryable?
    assert_equal [@name, "acquire", []], [error.lock_name, error.tried, error.causes]
    assert_equal :released, held.release
    assert_equal :already_released, held.release
    again = @lock.try_acquire
    assert_predicate again, :held?
    again.release
  end

  def test_a_waiter_is_woken
    held = @lock.acquire
    waiter = Thread.new { @lock.synchronize(&:fencing_token) }
    eventually("it waits") { @client.stats.waiting == 1 }
    token = held.fencing_token
    held.release
    assert_operator waiter.value, :>, token
    assert_equal 0, @client.stats.busy, "a wait is no busy try"
    assert_nothing_left(@client, @name)
  end

  def test_a_lease_is_extended
    lock = @client.lock(@name, ttl: 2, auto_renew: false)
    lease = lock.acquire
    lease.extend(500)
    assert_operator lease.remaining, :>, 400
    lease.release
    assert_raises(Onelock::LockNotHeld) { lease.extend(5) }
  end

  def test_a_lease_goes_to_another_client
    lease = @lock.acquire
    token = lease.fencing_token
    proof = lease.detach
    assert_equal Encoding::UTF_8, proof.encoding
    refute_predicate lease, :held?
    assert_equal :already_released, lease.release
    taken = connect.lock(@name).attach(proof)
    assert_equal token, taken.fencing_token
    assert_raises(Onelock::LockLost) { @lock.attach(proof) }
    assert_equal :released, taken.release
    assert_raises(Onelock::InvalidArgument) { @lock.attach("no proof") }
  end

  def test_a_loss_is_raised_at_the_end_of_a_scope
    error = assert_raises(Onelock::LockLost) do
      @lock.synchronize do |lease|
        redis.del(@name)
        assert_predicate lease, :held?, "nobody knows yet"
      end
    end
    assert_equal [:taken, @name], [error.reason, error.lock_name]
  end

  def test_a_loss_is_the_cause_of_the_error_of_a_block
    error = assert_raises(IndexError) do
      @lock.synchronize do
        redis.del(@name)
        raise IndexError
      end
    end
    assert_kind_of Onelock::LockLost, error.cause
    # what has a cause already keeps it
    error = assert_raises(IndexError) do
      @lock.synchronize do
        redis.del(@name)
        raise KeyError
      rescue KeyError
        raise IndexError
      end
    end
    assert_kind_of KeyError, error.cause
  end

  def test_a_loss_is_told
    told = Queue.new
    late = Queue.new
    lease = @client.lock(@name, ttl: 0.3, on_lost: ->(lost, reason) { told << [lost, reason, Thread.current.name] }).acquire
    lease.on_lost { raise "this harms nothing" }
    lease.on_lost { |_, reason| told << reason }
    redis.del(@name)
    _, err = capture_io do
      assert_equal :taken, lease.wait_lost(LONG)
      lost, reason, thread = Timeout.timeout(LONG) { told.pop }
      assert_same lease, lost
      assert_equal [:taken, "onelock events"], [reason, thread]
      assert_equal :taken, Timeout.timeout(LONG) { told.pop }
      # one that is set after that is called at once
      lease.on_lost { |_, why| late << why }
      assert_equal :taken, Timeout.timeout(LONG) { late.pop }
    end
    assert_match(/a callback for a loss raised RuntimeError: this harms nothing/, err)
    assert_equal [:taken, true, false], [lease.loss, lease.lost?, lease.held?]
    assert_raises(Onelock::LockLost) { lease.extend(10) }
  end

  def test_nobody_hears_of_a_release
    told = Queue.new
    @client.lock(@name, ttl: 0.3, on_lost: ->(*) { told << 1 }).synchronize { |lease| assert_nil lease.wait_lost(0.01) }
    marker = @client.lock(unused, ttl: 0.3, on_lost: ->(*) { told << 2 })
    lease = marker.acquire
    redis.del(marker.name)
    assert_equal 2, Timeout.timeout(LONG) { told.pop }
    assert_predicate lease, :lost?
  end

  def test_names_are_bytes
    bytes = "#{unused}\xff\x00".b
    @client.lock(bytes).synchronize { |lease| assert_equal [bytes, Encoding::BINARY], [lease.name, lease.name.encoding] }
    text = unused("grüße")
    @client.lock(text.encode("UTF-16LE")).synchronize { |lease| assert_equal text, lease.name }
    @client.lock(:symbol).synchronize { |lease| assert_equal "symbol", lease.name }
    ["", "x" * 513, nil, 7].each { |wrong| assert_raises(Onelock::InvalidArgument) { @client.lock(wrong) } }
  end

  def test_what_is_held_is_seen
    watcher = connect(label: "watcher", inspectable: true)
    assert_nil watcher.inspect(@name)
    refute_predicate @lock, :locked?
    watcher.lock(@name).synchronize do |lease|
      found = @client.inspect(@name)
      assert_equal [:lock, :onelock, 1, lease.fencing_token], [found.kind, found.origin, found.hold_count, found.fencing_token]
      assert_equal ["watcher", Process.pid], [found.owner.label, found.owner.pid]
      assert_in_delta Time.now, found.owner.since, LONG
      assert_predicate @lock, :locked?
      assert_equal [@name], @client.list(@name).entries.map(&:name)
      assert_equal [@name], @client.listing("#{@name}*").map(&:name)
    end
    assert_equal "#<Onelock::Client>", @client.inspect
    assert_empty @client.list(@name).entries
  end

  def test_an_operator_ends_a_hold
    lease = @lock.acquire
    assert @client.force_release(@name)
    refute @client.force_release(@name)
    assert_equal :already_expired, lease.release
    redis.set(@name, "foreign")
    assert_raises(Onelock::WrongKind) { @client.force_release(@name) }
    assert @client.force_release(@name, foreign: true)
  end

  def test_the_server_is_looked_at
    facts = @client.check
    assert_match(/valkey/, facts.server)
    assert_equal :clock_bounded, facts.grade
    diagnosis = @client.diagnose("app:")
    assert_equal :clock_bounded, diagnosis.grade
    assert_includes diagnosis.findings.map(&:step), "tcp"
    assert_empty(diagnosis.findings.select { |finding| finding.severity == :failed })
    refused = Onelock::Client.new("redis://127.0.0.1:1/").diagnose
    assert_equal :failed, refused.severity
    assert_includes refused.findings.map(&:error), Onelock::ServerUnavailable
  end

  def test_what_happened_is_counted
    @lock.synchronize { nil }
    stats = @client.stats
    assert_equal [0, 1, 1, 0], [stats.held, stats.acquired, stats.released, stats.lost]
    assert_equal [1, 1], [stats.wait.count, stats.hold.count]
    assert_equal [32, 1], [stats.wait.buckets.size, stats.wait.buckets.sum]
    assert_operator stats.wait.quantile(0.5), :>, 0
    assert_operator stats.wait.sum, :<, LONG
  end

  def test_a_closed_client_ends_everything
    lease = @lock.acquire
    waiter = Thread.new { assert_raises(Onelock::ClientClosed) { @lock.acquire } }
    eventually("it waits") { @client.stats.waiting == 1 }
    @client.close
    @client.close
    waiter.value
    assert_equal :closed, lease.loss
    assert_raises(Onelock::ClientClosed) { @lock.acquire }
    assert_nothing_left(@client, @name)
    assert_equal 5, Onelock::Client.open(URL) { |client| client.lock(@name).synchronize { 5 } }
  end

  def test_a_client_that_is_refused_keeps_no_connection
    label = unused("refused").tr(":", "-")
    GC.disable
    assert_raises(Onelock::Unsupported) { Onelock::Client.open(URL, label: label, min_fencing_grade: :strict) }
    assert_raises(IndexError) { Onelock::Client.open(URL, label: label) { raise IndexError } }
    eventually("its connections end") { redis.client(:list).none? { |one| one["name"].include?(label) } }
    Onelock::Client.open(URL, label: label).tap do |client|
      assert(redis.client(:list).any? { |one| one["name"].include?(label) })
      client.close
    end
  ensure
    GC.enable
  end

  def test_the_gate_refuses_lower_tokens
    gate = Onelock::FenceGate.new
    assert gate.admit?(5)
    assert gate.admit?(5)
    refute gate.admit?(4)
    assert_equal 5, gate.highest
    assert_raises(Onelock::InvalidArgument) { gate.admit?(-1) }
  end
end
