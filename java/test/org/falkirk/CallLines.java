package org.falkirk;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Calls Python for `tests/unit/java/test_python_calls.py`.
 *
 * <p>A line {@code begin} starts a command, whose words follow tabs, or gives the error of its start. {@code end} ends it. Another line is a request as
 * hexadecimal digits, or {@code task}: the task ends, and another one begins, or {@code spare}: another task calls once
 * and ends. Or it is a record of a step with a state: a key, a partition and a
 * request. Or it is {@code rows} and requests, {@code null} for a row without one, {@code fail} for an error of the
 * iterator: another task of a step without a state gets these rows. {@code send} and requests, then {@code next} for each
 * of their answers: the requests are under way together. The answer to a request has the number of the process,
 * and the answer or the error; that to rows has their answers, and then the error if there is one.
 */
public final class CallLines {
    private static final StructType RECORDS = StructType.fromDDL(
        "call BINARY, key STRUCT<key0: STRING>, stamp STRUCT<source: INT, partition: INT>");

    private byte[] folded(String[] words) {
        if (states == null) {
            states = new PythonState("call", "key", "stamp", command, null, null, null);
            states.open(RECORDS, new InMemory());
        }
        Row record = RowFactory.create(
            words[2].isEmpty() ? null : HexFormat.of().parseHex(words[2]),
            RowFactory.create(words[0].isEmpty() ? null : words[0]), RowFactory.create(0, Integer.parseInt(words[1])));
        List<Row> found = InMemory.all(states.take(record));
        Check.equal(found.size(), 1);
        Check.equal(found.get(0).get(1), record.get(1));
        return found.get(0).isNullAt(0) ? new byte[0] : (byte[]) found.get(0).get(0);
    }

    private String rows(String[] words) {
        PythonCalls calls = new PythonCalls(command);
        Iterator<Row> rows = Arrays.stream(words).skip(1).map(word -> {
            if (word.equals("fail")) throw new IllegalStateException("the iterator failed");
            return RowFactory.create(word.equals("null") ? null : HexFormat.of().parseHex(word), word);
        }).iterator();
        StringBuilder found = new StringBuilder();
        PythonStep.Answered answered = new PythonStep.Answered(rows, 0, calls);
        try {
            while (answered.hasNext()) {
                Row row = answered.next();
                found.append(row.isNullAt(0) ? "null" : HexFormat.of().formatHex((byte[]) row.get(0))).append(' ');
            }
        } catch (IllegalStateException error) {
            found.append(error.getMessage().replace('\n', ' '));
        }
        answered.close();
        calls.end();
        return found.toString().strip();
    }

    /** Argument: the folder of sockets. */
    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        CallLines of = null;
        int commands = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.startsWith("begin\t")) {
                if (of != null) of.end();
                of = null;
                try {
                    of = new CallLines(arguments[0], "command " + commands++, List.of(line.split("\t")));
                    answers.println("begun");
                } catch (IllegalStateException error) {
                    answers.println(error.getMessage());
                }
            } else if (line.equals("end")) {
                of.end();
                of = null;
                answers.println("ended");
            } else {
                answers.println(of.answered(line));
            }
        }
        if (of != null) of.end();
    }

    private final PythonCommand command;
    private PythonState states;
    private PythonCalls calls;

    /** @param words {@code begin}, the times in ms, a file with the setup, and the words of the command. */
    private CallLines(String folder, String id, List<String> words) throws IOException {
        command = new PythonCommand(
            id, List.copyOf(words.subList(4, words.size())), Map.of(), folder, Files.readAllBytes(Path.of(words.get(3))),
            Long.parseLong(words.get(1)), Long.parseLong(words.get(2)), null);
        calls = new PythonCalls(command);
    }

    private void end() {
        calls.end();
        PythonWorkers.endUnused(System.nanoTime() + 1);
    }

    private String answered(String line) {
        if (line.equals("task")) {
            calls.end();
            calls = new PythonCalls(command);
            return "begun";
        }
        if (line.equals("spare")) {
            PythonCalls spare = new PythonCalls(command);
            spare.call(new byte[0]);
            String pid = String.valueOf(spare.worker().pid());
            spare.end();
            return pid;
        }
        if (line.startsWith("rows ")) return rows(line.split(" "));
        if (line.startsWith("send ")) {
            calls.send(Arrays.stream(line.split(" ")).skip(1).map(HexFormat.of()::parseHex).toList());
            return "sent";
        }
        String answer;
        try {
            String[] parts = line.split(" ", -1);
            byte[] found = line.equals("next") ? calls.next()
                : parts.length == 1 ? calls.call(HexFormat.of().parseHex(line)) : folded(parts);
            answer = HexFormat.of().formatHex(found);
        } catch (IllegalStateException error) {
            answer = error.getMessage().replace('\n', ' ');
        }
        return calls.worker().pid() + " " + answer;
    }
}
