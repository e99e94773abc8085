# frozen_string_literal: true

require_relative "helper"

class TestKinds < OnelockTest
  def setup
    @client = connect
    @name = unused
  end

  def test_a_thread_enters_its_reentrant_lock_again
    lock = @client.reentrant_lock(@name)
    lock.synchronize do
      lock.synchronize { |inner| assert_equal 2, inner.hold_count }
      assert_nil Thread.new { lock.try_acquire }.value, "another thread is another owner"
      assert_nil Fiber.new { lock.try_acquire }.resume, "another fiber is another owner"
    end
    refute redis.exists?(@name)
  end

  def test_an_owner_of_the_program_enters_from_everywhere
    owner = Onelock::Owner.new
    lock = @client.reentrant_lock(@name, owner: owner)
    lock.synchronize { Thread.new { lock.synchronize { |inner| assert_equal 2, inner.hold_count } }.join }
    named = ->(name) { @client.reentrant_lock(@name, owner: Onelock::Owner.new(name)) }
    named["job 7"].synchronize do
      named["job 7"].synchronize { |inner| assert_equal 2, inner.hold_count }
      assert_nil named["job 8"].try_acquire
    end
    scoped = @client.reentrant_lock(@name)
    Onelock.owner_scope do |one|
      scoped.synchronize do
        Thread.new { Onelock.owner_scope(one) { scoped.synchronize { |inner| assert_equal 2, inner.hold_count } } }.join
      end
      scoped.synchronize { assert_nil Onelock.owner_scope { scoped.try_acquire } }
    end
    assert_raises(Onelock::InvalidArgument) { @client.reentrant_lock(@name, owner: "text") }
    %i[lock fair_lock semaphore].each do |kind|
      assert_raises(Onelock::InvalidArgument, kind) { @client.public_send(kind, @name, owner: owner).acquire }
    end
    assert_raises(ArgumentError) { @client.lock(@name, permits: 3) }
  end

  def test_a_fair_lock_serves_in_order
    lock = @client.fair_lock(@name)
    others = Array.new(3) { connect }
    served = Queue.new
    held = lock.acquire
    threads = others.each_with_index.map do |other, number|
      Thread.new { other.fair_lock(@name).synchronize { served << number } }.tap do
        eventually("#{number} waits") { @client.inspect(@name).waiting == number + 1 }
      end
    end
    held.release
    threads.each(&:join)
    assert_equal [0, 1, 2], Array.new(3) { served.pop }
  end

  def test_many_read_and_one_writes
    lock = @client.rw_lock(@name)
    assert_equal @name, lock.name
    lock.read.synchronize do
      assert_equal(:read_lock, Thread.new { lock.read.synchronize(&:kind) }.value)
      assert_nil(Thread.new { lock.write(wait: 5).try_acquire }.value)
      assert_raises(Onelock::WouldDeadlock) { lock.write.acquire }
    end
    lock.write.synchronize do |lease|
      token = lease.fencing_token
      lease.downgrade
      assert_equal :read_lock, lease.kind
      assert_operator lease.fencing_token, :>, token
      assert(Thread.new { lock.read.synchronize(&:held?) }.value)
    end
  end

  def test_a_semaphore_lets_so_many_in
    downloads = @client.semaphore(@name, 3, wait: 0)
    assert_nil downloads.permits
    two = downloads.acquire(permits: 2)
    assert_nil two.fencing_token
    assert_equal [3, 2, 1], downloads.permits.to_a
    assert_nil downloads.try_acquire(permits: 2)
    downloads.synchronize { assert_predicate downloads, :locked? }
    assert_raises(Onelock::LockBusy) { downloads.synchronize(permits: 2) { flunk } }
    two.release
    downloads.synchronize(permits: 3) { |lease| assert_predicate lease, :held? }
    assert_raises(Onelock::PermitsMismatch) { @client.semaphore(@name, 4).try_acquire }
    assert_equal 4, downloads.set_permits(4).total
    assert_raises(Onelock::InvalidArgument) { @client.semaphore(@name, 4).acquire(permits: 5) }
    [0, -1, 1.5, nil].each { |wrong| assert_raises(Onelock::InvalidArgument) { @client.semaphore(@name).acquire(permits: wrong) } }
  end

  def test_several_locks_are_held_together_or_not_at_all
    a, b = unused, unused
    both = @client.multi_lock(a, b, wait: 0)
    assert_equal [[a, b], "#{a}, #{b}", :multi_lock], [both.names, both.name, both.kind]
    both.synchronize do |lease|
      assert_nil lease.fencing_token
      assert_operator lease.fencing_token_of(a), :>, 0
      assert_nil lease.fencing_token_of("another")
      assert redis.exists?(a) && redis.exists?(b)
    end
    other = @client.lock(b).acquire
    assert_nil both.try_acquire
    refute redis.exists?(a)
    other.release
    told = Queue.new
    mixed = Onelock::MultiLock.new(@client.reentrant_lock(@name, on_lost: ->(*) { told << :member }), connect.lock(a),
                                   wait: 5, on_lost: ->(*) { told << :whole })
    mixed.synchronize { assert_raises(Onelock::LockBusy) { mixed.synchronize(wait: 0) { flunk } } }
    lease = @client.multi_lock(a, b, ttl: 0.3, on_lost: ->(*) { told << :whole }).acquire
    redis.del(b)
    assert_equal :taken, lease.wait_lost(LONG)
    assert_equal :whole, Timeout.timeout(LONG) { told.pop }
    assert_raises(Onelock::Unsupported) { both.attach("proof") }
    [[], ["text"], [both]].each { |wrong| assert_raises(Onelock::InvalidArgument) { Onelock::MultiLock.new(*wrong) } }
  end
end
