package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Lists and maps of Java as those of Scala, and back. */
final class Scala {
  private Scala() {}

  static <A> Seq<A> seq(List<? extends A> list) {
    return CollectionConverters.<A>asScala(new ArrayList<A>(list).iterator()).toList();
  }

  static <A, B> scala.collection.immutable.Map<A, B> map(Map<A, B> map) {
    return scala.collection.immutable.Map.from(CollectionConverters.asScala(map));
  }

  static <A> List<A> list(scala.collection.Iterable<? extends A> several) {
    List<A> list = new ArrayList<>();
    for (Iterator<? extends A> parts = several.iterator(); parts.hasNext(); ) {
      list.add(parts.next());
    }
    return list;
  }
}
