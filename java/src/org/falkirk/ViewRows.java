package org.falkirk;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;

/** The rows of one epoch of a view that have a key. */
public final class ViewRows implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final Object[] NONE = {};

  private final String view;
  private final String name;
  private final int place;
  private final ArrayList<Integer> key;
  private final boolean several;
  private final DataType[] types;
  private final int[] places;
  private transient boolean isFresh;

  private ViewRows(String view, String name, int place, List<Integer> key, boolean several, StructType schema) {
    this.view = view;
    this.name = name;
    this.place = place;
    this.key = new ArrayList<>(key);
    this.several = several;
    this.types = key.stream().map(each -> schema.apply(each).dataType()).toArray(DataType[]::new);
    this.places = new int[types.length];
    Arrays.setAll(places, i -> i);
  }

  /**
   * Return the rows as a column of arrays.
   *
   * @param view the handle of the view. name: for the texts of plans.
   * @param place of the number of its epoch in `epochs`.
   * @param key the places of the columns of the key, in the view.
   * @param several whether the row has an array of keys.
   * @param schema of the view, as JSON.
   * @param epochs a STRUCT column with the numbers of epochs. keys: a STRUCT column with the key of the row.
   */
  public static Column of(
      String view, String name, int place, List<Integer> key, boolean several, String schema, Column epochs,
      Column keys) {
    StructType rows = (StructType) DataType.fromJson(schema);
    ViewRows made = new ViewRows(view, name, place, key, several, rows);
    Literal target = Literal.fromObject(made, new ObjectType(ViewRows.class));
    return ExpressionUtils.column(
        new Invoke(
            target, "rows", new ArrayType(rows, false),
            Scala.seq(List.of(ExpressionUtils.expression(epochs), ExpressionUtils.expression(keys))),
            Scala.seq(List.of()), false, false, true));
  }

  /** Return the rows for the key of a row. A key with a null has none. */
  public ArrayData rows(InternalRow epochs, InternalRow keys) {
    if (!isFresh) { // the first row of a task: the epoch may have other rows than before a rollback
      ViewReceiver.refresh();
      isFresh = true;
    }
    Map<Object, Object[]> known = Views.rows(view, epochs.getLong(place), key);
    if (!several) {
      Object asked = Views.key(keys, places, types);
      return new GenericArrayData(asked == null ? NONE : known.getOrDefault(asked, NONE));
    }
    List<Object> found = new ArrayList<>();
    if (!keys.isNullAt(0)) {
      ArrayData asked = keys.getArray(0);
      for (int i = 0; i < asked.numElements(); i++) {
        if (!asked.isNullAt(i)) Collections.addAll(found, known.getOrDefault(asked.get(i, types[0]), NONE));
      }
    }
    return new GenericArrayData(found.toArray());
  }

  @Override
  public String toString() {
    return "view " + name;
  }
}
