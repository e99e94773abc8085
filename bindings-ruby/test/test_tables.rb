# frozen_string_literal: true

require_relative "helper"

# What is the same in every language stands in tests/spec.
class TestTables < OnelockTest
  # The tables of a TOML file as simple as these are.
  def rows(file, table)
    found = []
    File.foreach(File.join(ROOT, "tests/spec", file)) do |line|
      inside = line[/\A\[+(\w+)\]/, 1]
      (@inside = inside) && inside == table && found << {} if inside
      key, value = line.match(/\A(\w+) = (.*)$/)&.captures
      found.last[key] = value.delete_prefix('"').delete_suffix('"') if key && @inside == table
    end
    found
  end

  def test_every_row_is_a_class_and_every_class_a_row
    table = rows("errors.toml", "error")
    assert_equal 20, table.size
    assert_equal table.map { |row| row["number"].to_i }.sort, Onelock::Error::BY_NUMBER.keys.sort
    table.each do |row|
      type = Onelock::Error::BY_NUMBER.fetch(row["number"].to_i)
      # the names are Python's
      assert_equal ["Onelock::#{row["python"]}", row["kind"], row["number"].to_i], [type.name, type.kind, type.number]
      assert_equal row["retryable"], type.retryable?.to_s, type.name
      assert_equal row["not_acquired"], (type < Onelock::NotAcquired || false).to_s, type.name
      number = row["number"].to_i
      assert_equal [row["kind"], row["todo"]], [Onelock::Native.status_name(number), Onelock::Native.status_hint(number)].map(&:b)
      assert_equal type.retryable?, Onelock::Native.status_is_retryable(number)
      assert_equal type < Onelock::NotAcquired || false, Onelock::Native.status_is_not_acquired(number)
    end
  end

  VALUES = {
    "duration" => 5, "flag" => true, "share" => 0.02, "count" => 0, "bytes" => "app:", "text" => "text", "secret" => "secret",
    "path" => "/file", "grade" => :best_effort, "notify" => :classic, "function" => -> { "password" }
  }.freeze
  WRONG = {
    "duration" => ["5", -1, Float::NAN, 1i], "flag" => [0, "yes"], "share" => ["0.1"], "count" => [1.5, -1, "3"], "bytes" => [7],
    "text" => [7, "a\0b"], "secret" => [7, "a\0b"], "path" => [7], "grade" => [:great, 7], "notify" => [:loud], "function" => [7]
  }.freeze

  def test_every_option_is_taken_and_no_other
    table = rows("options.toml", "option")
    assert_operator table.size, :>, 25
    table.each do |row|
      name = row["name"].to_sym
      if row["type"] == "certificate"
        pair = { cert_file: "a", key_file: "b" }
        assert_equal pair.keys, options::PAIR
        pair.each_key { |one| assert_raises(Onelock::InvalidArgument) { Onelock::Client.new("rediss://host", one => "a") } }
        next
      end
      value = VALUES.fetch(row["type"])
      value = 0.2 if name == :node_timeout
      value = "persistence" if name == :accepted_warnings
      assert_kind_of Onelock::Client, Onelock::Client.new("redis://host", name => value), name
      assert_kind_of Onelock::Client, Onelock::Client.new("redis://host", name => nil), name
      WRONG.fetch(row["type"]).each do |wrong|
        error = assert_raises(Onelock::InvalidArgument, "#{name}: #{wrong}") { Onelock::Client.new("redis://host", name => wrong) }
        assert_includes error.message, row["name"]
      end
      client = Onelock::Client.new("memory://")
      if row["lock"] == "true"
        client.lock("a", name => value)
        client.multi_lock("a", "b", name => value)
      else
        assert_raises(ArgumentError) { client.lock("a", name => value) }
      end
    end
    assert_raises(ArgumentError) { Onelock::Client.new("memory://", nonsense: 1) }
  end

  def test_the_names_of_the_library_are_known
    words = ->(name) { (0..20).filter_map { |number| Onelock::Native.word(name, number) } }
    assert_equal words[:grade_name], options::GRADES.map(&:to_sym)
    assert_equal (words[:kind_name] - [:multi_lock]), options::KINDS.keys
    options::KINDS.each { |name, number| assert_equal name, Onelock::Native.word(:kind_name, number) }
  end

  def options
    Onelock.const_get(:Options)
  end

  # What the C interface has, the gem uses; but for what Ruby has in another way.
  NOT_USED = {
    "onelock_lock_new_str" => "names are bytes with their length",
    "onelock_client_connect" => "new, then check", "onelock_lock_acquire" => "waiting is interruptible in the background only",
    "onelock_cancel_new" => "an acquisition is cancelled itself", "onelock_cancel_cancel" => "the same",
    "onelock_cancel_is_cancelled" => "the same", "onelock_cancel_free" => "the same",
    "onelock_lock_name" => "the object knows it", "onelock_lock_kind" => "the same",
    "onelock_acquisition_on_ready" => "there is the descriptor", "onelock_lease_wait_lost" => "the same",
    "onelock_acquisition_is_ready" => "the same", "onelock_credentials_request_time_left_ms" => "a late answer is dropped",
    "onelock_error_status" => "the class tells", "onelock_error_kind" => "the same", "onelock_error_is_retryable" => "the same",
    "onelock_log_set" => "a line may come inside of a call and on the thread that renews, where nothing of Ruby may run",
    "onelock_lock_options_set_on_lost" => "callbacks are set on the lease", "onelock_lock_options_set_on_jeopardy" => "the same"
  }.freeze

  def test_every_function_of_the_library_is_used
    symbols = File.readlines(File.join(ROOT, "bindings-c/abi/symbols.txt"), chomp: true)
    assert_operator symbols.size, :>, 150
    unused = symbols.reject { |symbol| Onelock::Native.respond_to?(symbol.delete_prefix("onelock_")) }
    assert_equal NOT_USED.keys.sort, unused.sort
    files = Dir[File.join(ROOT, "bindings-ruby/lib/onelock/*.rb")].partition { |file| file.end_with?("native.rb") }
    native, code = files.map { |some| some.map { |file| File.read(file) }.join }
    # called by a name that is put together
    dynamic = /options_set_|diagnosis_(server|step|detail|todo)$|^status_/
    names = (symbols - unused).map { |symbol| symbol.delete_prefix("onelock_") }.grep_v(dynamic)
    assert_operator names.size, :>, 100
    # declared there, and called there or elsewhere
    assert_empty(names.reject { |name| code.match?(/\b#{name}\b/) || native.scan(/\b#{name}\b/).size > 1 })
  end

  def test_the_versions_are_one
    assert_equal Onelock::VERSION, Onelock.native_version
    assert_match(/^version = "#{Regexp.escape(Onelock::VERSION)}"$/, File.read(File.join(ROOT, "Cargo.toml")))
  end
end
